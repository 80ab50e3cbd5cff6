"""Offsets that open transactions have committed for one group.

They take effect when their transaction commits. Until then they are held here, by producer id, as
in the log. An offset that is committed or deleted outside the transaction, later in the log,
replaces a pending one: compaction keeps the later record of a key, and so must this table.
"""

from __future__ import annotations

from goqueue.groups.assignment.partitions import Partition
from goqueue.groups.offsets import OffsetChange
from goqueue.groups.results import CommittedOffset


class PendingOffsets:
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
