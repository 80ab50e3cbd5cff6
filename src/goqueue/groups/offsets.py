"""The committed offsets of one group, and those that open transactions have committed.

An offset is visible once it is durable: changes are applied when their write completes, in log
order, so these tables always equal what a reload would find.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from goqueue.groups.assignment.partitions import Partition
from goqueue.groups.results import CommittedOffset

OffsetChange = tuple[str, int, CommittedOffset | None]


class Offsets:
    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._topics.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def apply(self, change: OffsetChange) -> None:
        topic, partition, committed = change
        if committed is not None:
            self._topics.setdefault(topic, {})[partition] = committed
        elif topic in self._topics:
            self._topics[topic].pop(partition, None)
            if not self._topics[topic]:
                del self._topics[topic]

    def select(
        self, wanted: Mapping[str, Collection[int]] | None
    ) -> dict[str, dict[int, CommittedOffset]]:
        """The offsets that exist among the requested ones; `None` requests all."""
        if wanted is None:
            return {topic: dict(partitions) for topic, partitions in self._topics.items()}
        selected = {}
        for topic, partitions in wanted.items():
            known = self._topics.get(topic, {})
            selected[topic] = {each: known[each] for each in partitions if each in known}
        return selected

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        return self._topics.get(topic, {})

    def expired(
        self,
        now_ms: int,
        *,
        retention_ms: int,
        emptied_at_ms: int,
        is_subscribed: Callable[[str], bool],
    ) -> list[OffsetChange]:
        """Deletions of all expired offsets.

        An offset lives as long as a member subscribes to its topic, and `retention_ms` from then
        on. A retention that the committing client requested is used as it is.
        """
        changes: list[OffsetChange] = []
        for topic, partitions in self._topics.items():
            if is_subscribed(topic):
                continue
            for partition, committed in partitions.items():
                unused_since_ms = max(committed.committed_at_ms, emptied_at_ms)
                expires_at_ms = committed.expires_at_ms
                if expires_at_ms < 0:
                    expires_at_ms = unused_since_ms + retention_ms
                if expires_at_ms <= now_ms:
                    changes.append((topic, partition, None))
        return changes


class PendingOffsets:
    """Offsets committed in open transactions, by producer id; they take effect with the commit.

    An offset that is committed or deleted outside the transaction, later in the log, replaces a
    pending one: compaction keeps the later record of a key, and so must this table.
    """

    def __init__(self) -> None:
        self._producers: dict[int, dict[Partition, CommittedOffset | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._producers)

    def put(self, producer_id: int, change: OffsetChange) -> None:
        topic, partition, committed = change
        self._producers.setdefault(producer_id, {})[topic, partition] = committed

    def supersede(self, topic: str, partition: int) -> None:
        """Drop pending offsets of a partition with a later, non-transactional record in the log."""
        for producer_id in list(self._producers):
            self._producers[producer_id].pop((topic, partition), None)
            if not self._producers[producer_id]:
                del self._producers[producer_id]

    def take(self, producer_id: int) -> list[OffsetChange]:
        """Remove and return the offsets of a transaction that ends."""
        taken = self._producers.pop(producer_id, {})
        return [(topic, partition, committed) for (topic, partition), committed in taken.items()]

    def partitions(self) -> set[Partition]:
        return {partition for pending in self._producers.values() for partition in pending}
