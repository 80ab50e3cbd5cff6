"""What must be true of a cluster at every moment, whatever happens to its nodes.

All that anybody has seen as committed is kept here, batch by batch. Whatever a node shows as
committed later, in whichever role, has to agree with it, and whoever leads must have all of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from goqueue.broker.topics.topics import Topic
from goqueue.model.batch import HEADER_BYTES, BatchHeader, check_batch, decode_batch, read_header
from goqueue.model.errors import CorruptBatch, GoQueueError, StorageFailed
from goqueue.partition import Partition

if TYPE_CHECKING:
    from tests.simulation.cluster_world import ClusterNode, ClusterWorld

READ_BYTES = 1 << 20

Place = tuple[str, int]


@dataclass
class Ledger:
    """All that was ever seen of one partition."""

    epoch: int = -1  # the newest in which anybody is known to have led
    end: int = 0  # where the committed part ends
    committed: dict[int, tuple[int, bytes]] = field(default_factory=dict)  # offset: next, batch
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)  # epoch, offset: batch

    def values(self) -> list[str]:
        """The committed values, in order."""
        values: list[str] = []
        at = 0
        while at < self.end:
            at, batch = self.committed[at]
            values += [(record.value or b"").decode() for record in decode_batch(batch)]
        return values


@dataclass
class _Seen:
    """How much of one copy has been looked at."""

    written: int = 0
    committed: int = 0


class Watch:
    """Looks at all copies of all partitions, at what is new in them."""

    def __init__(self, world: ClusterWorld) -> None:
        self.ledgers: dict[Place, Ledger] = {}
        self._world = world
        self._seen: dict[tuple[int, int, Place], _Seen] = {}
        self._marks: dict[tuple[int, int, Place, int], int] = {}
        self._leaders: dict[tuple[Place, int], int] = {}
        self._first_ids: dict[str, bytes] = {}  # of topics by name

    def ledger(self, topic: str, number: int = 0) -> Ledger:
        return self.ledgers.setdefault((topic, number), Ledger())

    def check(self) -> None:
        """At every tick."""
        for node in self._world.up():
            cluster = node.broker.cluster
            assert cluster is not None
            for topic in node.broker.topics:
                name = self._name_of(topic)
                for number, partition in enumerate(topic.partitions):
                    if cluster.replicas.leads(topic.id, number):
                        self._check_leader(node, (name, number), partition)
                    self.look(node, (name, number), partition)
        self._check_completeness()

    def _name_of(self, topic: Topic) -> str:
        """A name for each topic: one that is made after another was deleted is not the same."""
        is_first = self._first_ids.setdefault(topic.name, topic.id) == topic.id
        return topic.name if is_first else f"{topic.name}#{topic.id}"

    def check_whole(self) -> None:
        """At the end: look at everything once more, as if for the first time."""
        self._seen.clear()
        self.check()

    def digest(self) -> str:
        """The same for two runs with the same history."""
        told = hashlib.sha256()
        for place in sorted(self.ledgers):
            ledger = self.ledgers[place]
            told.update(repr((place, ledger.epoch, ledger.end)).encode())
            for key in sorted(ledger.written):
                told.update(ledger.written[key])
        return told.hexdigest()

    # Leaders

    def _check_leader(self, node: ClusterNode, place: Place, partition: Partition) -> None:
        epoch, ledger = partition.leader_epoch, self.ledger(*place)
        first = self._leaders.setdefault((place, epoch), node.number)
        self.demand(first == node.number, f"two leaders of {place} in epoch {epoch}")
        key = (node.number, node.life, place, epoch)
        mark = partition.high_watermark
        before = self._marks.get(key, 0)
        self.demand(mark >= before, f"the high watermark of {place} went from {before} to {mark}")
        self._marks[key] = mark
        ledger.epoch = max(ledger.epoch, epoch)

    def _check_completeness(self) -> None:
        """Whoever leads in the newest epoch has all that is committed."""
        for place, ledger in self.ledgers.items():
            leader = self._leaders.get((place, ledger.epoch))
            node = None if leader is None else self._world.nodes[leader]
            if node is None or not node.is_up or not node.leads(*place):
                continue
            if self._name_of(node.broker.topics.get(place[0])) != place[0]:
                continue
            partition = node.partition(*place)
            assert partition is not None
            if partition.leader_epoch == ledger.epoch:
                self.demand(
                    partition.end_offset >= ledger.end,
                    f"node {leader} leads {place} in epoch {ledger.epoch} up to "
                    f"{partition.end_offset}, but {ledger.end} was committed",
                )

    # Copies

    def look(self, node: ClusterNode, place: Place, partition: Partition) -> None:
        """Compare what is new in a copy with what others have shown."""
        seen = self._seen.setdefault((node.number, node.life, place), _Seen())
        end, mark = partition.end_offset, partition.high_watermark
        if end < seen.written:  # It was cut off.
            seen.written, seen.committed = min(seen.written, end), min(seen.committed, end)
        if end == seen.written and mark == seen.committed:
            return
        at = max(partition.start_offset, min(seen.written, seen.committed))
        ledger = self.ledger(*place)
        if ledger.end < partition.start_offset <= mark:
            # It was committed and deleted between two looks, as delivery state is.
            ledger.end = partition.start_offset
        for header, batch in self._batches(node, partition, at):
            self._note_written(node, place, header, batch)
            if header.next_offset <= mark:
                self.note_committed(place, header, batch, f"node {node.number}")
            at = header.next_offset
        # What has rotted here, and all after it, others have to show.
        seen.written, seen.committed = min(end, at), min(mark, at)

    def note_committed(self, place: Place, header: BatchHeader, batch: bytes, by: str) -> None:
        """Somebody has seen a batch as committed."""
        ledger = self.ledger(*place)
        first, next_offset = header.base_offset, header.next_offset
        known = ledger.committed.setdefault(first, (next_offset, batch))
        self.demand(
            known == (next_offset, batch),
            f"{by} has something else at {first} of {place} than was committed",
        )
        self.demand(first <= ledger.end, f"{by} commits {first} of {place} after {ledger.end}")
        self.demand(
            next_offset <= ledger.end or first == ledger.end,
            f"{by} has a batch across the end {ledger.end} of {place}",
        )
        ledger.end = max(ledger.end, next_offset)
        # Its leader may have died before it was seen to lead, and older ones need not have it.
        ledger.epoch = max(ledger.epoch, header.leader_epoch)

    def _note_written(
        self, node: ClusterNode, place: Place, header: BatchHeader, batch: bytes
    ) -> None:
        """No two copies differ in what they have of one epoch at one offset."""
        key = (header.leader_epoch, header.base_offset)
        known = self.ledger(*place).written.setdefault(key, batch)
        self.demand(known == batch, f"node {node.number} has another batch at {key} of {place}")

    def _batches(
        self, node: ClusterNode, partition: Partition, offset: int
    ) -> Iterable[tuple[BatchHeader, bytes]]:
        while offset < partition.end_offset:
            try:
                found = partition.replica.read(offset, bytes_max=READ_BYTES)
                data = b"" if found is None else found.read()
            except (CorruptBatch, StorageFailed):
                data = b""
            if not data:
                self._demand_excuse(node, partition, offset, "cannot read")
                return
            at = 0
            while at < len(data):
                header = read_header(data, at)
                batch = data[at : at + header.size]
                is_whole = len(batch) == header.size >= HEADER_BYTES
                if not is_whole or not is_sound(batch):
                    self._demand_excuse(node, partition, offset, "shows a damaged batch of")
                    return
                yield header, batch
                at += header.size
                offset = header.next_offset

    def _demand_excuse(
        self, node: ClusterNode, partition: Partition, offset: int, complaint: str
    ) -> None:
        """Demand that a disk has rotted, or that the power failed before it had the batch.

        It may have the pages after it. Until others have sent the batch again, it counts as damage.
        """
        place = (partition.name.topic, partition.name.partition)
        is_torn = offset >= node.durable.get(place, partition.end_offset)
        self.demand(
            node.is_rotten or is_torn,
            f"node {node.number} {complaint} {partition.name} at {offset}",
        )

    def demand(self, is_so: bool, complaint: str) -> None:
        assert is_so, f"seed {self._world.seed}, {self._world.age_ms:.0f} ms: {complaint}"


def is_sound(batch: bytes) -> bool:
    """Whether clients take a batch for what it says it is.

    A node sends unread what it has written itself, so that rot may reach them. The number of the
    format is outside the checksum, and clients look at it before anything else.
    """
    try:
        check_batch(batch)
    except GoQueueError:
        return False
    return True
