"""Derives from the log of committed offsets which messages stream groups have consumed.

The log is replayed from its beginning, because a commit says only how far a group is. Compaction
may have removed the commit before one that is derived; then its event begins earlier, and repeats
messages of an event that the journal has.
"""

from __future__ import annotations

from goqueue.broker.journeys.deriving import Derived, Names, Steps, batches, in_steps
from goqueue.broker.journeys.listening import Listener
from goqueue.config import GroupSettings
from goqueue.groups.coordinator import Coordinator
from goqueue.groups.effects import Progress
from goqueue.model.batch import BatchHeader, decode_batch, decode_marker
from goqueue.model.names import INTERNAL_TOPICS, TopicPartition
from goqueue.model.tenants import TopicName
from goqueue.partition import Partition


def derive_commits(
    partition: Partition, *, first: int, until: int, node: int, names: Names
) -> Steps:
    """Derive what a partition of committed offsets says from `first` up to an offset."""
    return in_steps(_Commits(first, node, names), batches(partition, until), until)


class _Commits:
    """Replays a partition of committed offsets."""

    def __init__(self, first: int, node: int, names: Names) -> None:
        self._first = first
        self._names = names
        self._time_ms = 0
        self._listener = Listener(node, lambda: self._time_ms, is_recovered=True)
        self._coordinator = Coordinator(GroupSettings())
        self._found: list[Derived] = []

    def take(self) -> list[Derived]:
        found, self._found = self._found, []
        return found

    def apply(self, header: BatchHeader, batch: bytes) -> None:
        self._time_ms = max(0, header.max_timestamp)
        producer_id = header.producer_id
        if header.is_control:
            is_commit = decode_marker(batch).is_commit
            moved = self._coordinator.replay_end(producer_id, is_commit=is_commit)
            self._add(header.base_offset, moved)
            return
        open_for = producer_id if header.is_transactional else None
        for record in decode_batch(batch):
            moved = self._coordinator.replay(record.key or b"", record.value, producer_id=open_for)
            self._add(record.offset, moved)

    def _add(self, position: int, moved: list[Progress]) -> None:
        for one in moved if position >= self._first else ():
            is_gone = one.topic_id and self._names.of_topic(one.topic_id) != one.topic
            if one.topic not in INTERNAL_TOPICS and not is_gone:
                name = TopicPartition(TopicName(one.topic), one.partition)
                self._listener.consumed(one.group_id, name, (one.first, one.end), consumer="")
        self._found += [Derived(position, *event) for event in self._listener.take()]
