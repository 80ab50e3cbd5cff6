"""Who writes to and reads from a replicated partition, and what they have been promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from goqueue.model.batch import BatchHeader, Record, encode_batch
from goqueue.model.errors import (
    DuplicateSequence,
    GoQueueError,
    OutOfOrderSequence,
)
from goqueue.partition import Partition
from tests.simulation.replication_cluster import Cluster, Node
from tests.unit.partition.till import committed

PATIENCE_MS = 120


class Sent(NamedTuple):
    """A batch as its producer remembers it."""

    producer_epoch: int
    sequence: int
    values: tuple[str, ...]


class Producer:
    """An idempotent producer with one batch on its way, which it repeats until there is an answer.

    With `acks_all` it wants every replica in sync to have it; else it is content with the leader.
    """

    def __init__(self, cluster: Cluster, producer_id: int, *, acks_all: bool) -> None:
        self.cluster = cluster
        self.key = b"k" * cluster.random.choice([1, 1, 50, 3000])
        self.producer_id = producer_id
        self.acks_all = acks_all
        self.epoch = 0
        self.sequence = 0
        self.count = 0
        self.sent: Sent | None = None
        self.sent_ms = 0
        self.acked: dict[int, Sent] = {}  # by base offset
        self.is_transactional = False

    def step(self) -> None:
        now_ms = self.cluster.clock.now_ms()
        if self.sent is None:
            count = self.cluster.random.randint(1, 3)
            values = tuple(f"{self.producer_id}:{self.count + one}" for one in range(count))
            self.count += count
            self.sent = Sent(self.epoch, self.sequence, values)
            self._attempt(self.sent)
        elif now_ms - self.sent_ms > PATIENCE_MS:
            self._attempt(self.sent)

    @property
    def is_idle(self) -> bool:
        return self.sent is None

    def _attempt(self, sent: Sent) -> None:
        self.sent_ms = self.cluster.clock.now_ms()
        node = believed_leader(self.cluster)
        if node is None:
            return
        partition = node.partition
        try:
            if self.acks_all and partition.shortage is not None:
                raise partition.shortage
            appended = partition.append(memoryview(self._batch(sent)), now_ms=node.clock.now_ms())
        except (OutOfOrderSequence, DuplicateSequence):
            self._out_of_order(node)
            return
        except GoQueueError:
            return
        wait = partition.when_committed if self.acks_all else partition.when_durable
        wait(appended.last_offset, self._answer_to(node, sent, appended.base_offset))

    def _answer_to(
        self, node: Node, sent: Sent, base_offset: int
    ) -> Callable[[GoQueueError | None], None]:
        life, is_lost = node.life, self.cluster.random.random() < 0.1

        def done(error: GoQueueError | None) -> None:
            assert node.is_up, "a dead node has answered"
            assert node.life == life, "a node has answered for an earlier life"
            if error is None and not is_lost and self.sent == sent:
                if self.acks_all:
                    self._check_copies(base_offset)
                self._stored(sent, base_offset)

        return done

    def _check_copies(self, offset: int) -> None:
        """As many disks have it as must; what a node knew when it died says what its disk has."""
        copies = sum(one.partition.replica.durable_offset > offset for one in self.cluster.nodes)
        assert copies >= self.cluster.in_sync_min, f"{copies} nodes have what is acknowledged"

    def _stored(self, sent: Sent, base_offset: int) -> None:
        self.acked[base_offset] = sent
        self.sequence += len(sent.values)
        self.sent = None

    def _out_of_order(self, node: Node) -> None:
        """What this producer was told is stored is not there."""
        if self.acks_all and not self.cluster.controller.is_unclean:
            assert not is_current(self.cluster, node), "what was acknowledged is not there"
            return  # A leader of old, who cannot know.
        self.epoch, self.sequence, self.sent = self.epoch + 1, 0, None

    def _batch(self, sent: Sent) -> bytearray:
        now_ms = self.cluster.clock.now_ms()
        return encode_batch(
            [Record(self.key, value.encode(), (), now_ms) for value in sent.values],
            producer_id=self.producer_id,
            producer_epoch=sent.producer_epoch,
            base_sequence=sent.sequence,
            is_transactional=self.is_transactional,
        )


class TransactionalProducer(Producer):
    """Writes a few batches, then has the coordinator write the marker until it is committed."""

    def __init__(self, cluster: Cluster, producer_id: int) -> None:
        super().__init__(cluster, producer_id, acks_all=True)
        self.is_transactional = True
        self.written: list[str] = []
        self.is_commit: bool | None = None  # None: not decided yet
        self.seen: list[str] = []
        self.unseen: set[str] = set()
        self.coordinator_epoch = 0

    @property
    def is_idle(self) -> bool:
        return self.sent is None and not self.written

    def step(self) -> None:
        if self.is_commit is not None:
            if self.cluster.clock.now_ms() - self.sent_ms > PATIENCE_MS:
                self._mark()
        elif self.sent is None and self.written and self.cluster.random.random() < 0.5:
            self.finish()
        else:
            super().step()

    def finish(self) -> None:
        """Decide how the transaction ends."""
        if self.is_commit is None and self.sent is None and self.written:
            self.is_commit = self.cluster.random.random() < 0.6
            self.coordinator_epoch += 1
            self._mark()

    def undecided(self) -> set[str]:
        """What no reader of committed records may see."""
        if self.is_commit:
            return set(self.unseen)
        on_its_way = () if self.sent is None else self.sent.values
        return {*self.unseen, *self.written, *on_its_way}

    def _stored(self, sent: Sent, base_offset: int) -> None:
        super()._stored(sent, base_offset)
        self.written += sent.values

    def _mark(self) -> None:
        self.sent_ms = self.cluster.clock.now_ms()
        node = believed_leader(self.cluster)
        if node is None or not is_current(self.cluster, node):
            return  # A coordinator knows its leader.
        try:
            marker = node.partition.append_marker(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                is_commit=bool(self.is_commit),
                coordinator_epoch=self.coordinator_epoch,
                now_ms=node.clock.now_ms(),
            )
        except GoQueueError:
            return
        number = self.coordinator_epoch

        def done(error: GoQueueError | None) -> None:
            if error is None and self.coordinator_epoch == number and self.is_commit is not None:
                self._ended()

        node.partition.when_committed(marker.last_offset, done)

    def _ended(self) -> None:
        if self.is_commit:
            self.seen += self.written
        else:
            self.unseen.update(self.written)
        self.written, self.is_commit = [], None


def believed_leader(cluster: Cluster) -> Node | None:
    """Where a client goes: mostly right, sometimes to one who leads no more or never did."""
    number = cluster.controller.leader
    if number < 0 or cluster.random.random() < 0.2:
        number = cluster.random.randrange(len(cluster.nodes))
    node = cluster.nodes[number]
    return node if node.is_up else None


def is_current(cluster: Cluster, node: Node) -> bool:
    """Whether a node leads by its own view and by the controller's."""
    controller = cluster.controller
    return (
        node.leading is not None
        and node.number == controller.leader
        and node.partition.leader_epoch == controller.leader_epoch
    )


class Ledger:
    """What has been committed, as seen on leaders: it must never change again."""

    def __init__(self) -> None:
        self.batches: dict[int, bytes] = {}  # by base offset
        self.end = 0
        self.marks: dict[tuple[int, int, int], int] = {}

    def observe(self, node: Node) -> None:
        """Look at a leader's high watermark."""
        partition = node.partition
        key = (node.number, node.life, partition.leader_epoch)
        mark = partition.high_watermark
        assert mark >= self.marks.get(key, 0), "a leader's high watermark went back"
        self.marks[key] = mark
        if mark > self.end:
            for header, batch in batches_of(partition, self.end, mark):
                self.batches[header.base_offset] = batch
            self.end = mark

    def check(self, partition: Partition, *, until: int, who: str) -> None:
        """A copy must have what is committed as it was committed."""
        for header, batch in batches_of(partition, partition.start_offset, until):
            expected = self.batches.get(header.base_offset)
            assert expected is None or expected == batch, f"{who} has another {header.base_offset}"


def batches_of(partition: Partition, first: int, until: int) -> list[tuple[BatchHeader, bytes]]:
    return list(partition.log.batches(max(first, partition.start_offset), until_offset=until))


def check_prefixes(nodes: list[Node]) -> None:
    """Where two logs have a batch of the same offset and epoch, all before it is the same too."""
    logs = {}
    for node in nodes:
        batches = batches_of(node.partition, 0, node.partition.end_offset)
        logs[node.number] = {header.base_offset: (header, data) for header, data in batches}
    for one, first in logs.items():
        for other, second in logs.items():
            shared = [
                offset
                for offset in first.keys() & second.keys()
                if first[offset][0].leader_epoch == second[offset][0].leader_epoch
            ]
            if one < other and shared:
                _check_same(first, second, until=max(shared), who=f"{one} and {other}")


def _check_same(
    first: dict[int, tuple[BatchHeader, bytes]],
    second: dict[int, tuple[BatchHeader, bytes]],
    *,
    until: int,
    who: str,
) -> None:
    begin = max(min(first), min(second))
    for offset in range(begin, until + 1):
        assert (offset in first) == (offset in second), f"{who} disagree about {offset}"
        if offset in first:
            assert first[offset][1] == second[offset][1], f"{who} differ at {offset}"


def check_unseen(node: Node, writers: list[TransactionalProducer]) -> None:
    """Readers of committed records see nothing that is not decided, or decided against."""
    values = set(committed(node.partition))
    for writer in writers:
        assert not values & writer.undecided()
