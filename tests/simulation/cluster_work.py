"""What clients do to a cluster while it is in trouble, and what they remember of it.

Clients may believe an old leader. What they send arrives late or never, and so do the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from goqueue.groups import (
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    OffsetErrors,
    OffsetToCommit,
)
from goqueue.model.batch import Record, decode_batch, encode_batch, read_header
from goqueue.model.errors import (
    CorruptBatch,
    DuplicateSequence,
    GoQueueError,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailed,
)
from goqueue.partition import Appended
from tests.simulation.cluster_watch import is_sound
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

OFFSETS_TOPIC = "__consumer_offsets"
TIMEOUT_MS = 1_500  # a client that hears nothing for so long asks again
RETRY_MS = 100
STALE_CHANCE = 0.15  # how often a client asks a node that is not the newest leader
READ_BYTES_MAX = 400


class Client:
    """Somebody who talks to nodes over a bad network."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.random = world.random

    def leader(self, topic: str, number: int) -> ClusterNode | None:
        """Whom the client believes to lead."""
        if self.random.random() < STALE_CHANCE:
            believing = [node for node in self.world.up() if node.leads(topic, number)]
            return self.random.choice(believing) if believing else None
        return self.world.leader_of(topic, number, or_paused=True)

    def send(self, node: ClusterNode, deed: Callable[[], None]) -> None:
        """Have `deed` done in this life of a node, some time later, or never."""
        life = node.life

        def arrive() -> None:
            if node.is_up and node.life == life:
                node.clock.deliver(deed)

        self.pass_on(arrive)

    def pass_on(self, deed: Callable[[], None]) -> None:
        """One way of a message, between a client and a node."""
        faults = self.world.network.faults
        if self.random.random() >= faults.loss / 2:
            self.world.clock.call_later(self.random.uniform(0.05, faults.delay_ms), deed)


@dataclass(slots=True)
class Batch:
    sequence: int
    values: list[str]
    is_out: bool = False
    is_acked: bool = False


class IdempotentWriter(Client):
    """Sends numbered values with acks=all until each is acknowledged, several batches at a time.

    As over one connection, a batch arrives only if all before it have. When one of them fails,
    everything that is not acknowledged is sent again, in order. What a paused node was sent, it
    processes when it is resumed, though its sender has gone elsewhere.

    Where a batch is stored, all before it are: so clients conclude (librdkafka does), and do not
    send again what failed before a batch that is acknowledged. If a batch is called out of order,
    librdkafka takes a new epoch, in which nobody recognises what was stored before. No node may
    call it that, because batches come in order, over one connection at a time.
    """

    IN_FLIGHT_MAX = 5  # so many the broker promises to recognise

    def __init__(
        self, world: ClusterWorld, topic: str, number: int, *, producer_id: int, in_flight: int
    ) -> None:
        super().__init__(world)
        assert in_flight <= self.IN_FLIGHT_MAX
        self.topic = topic
        self.number = number
        self.producer_id = producer_id
        self.in_flight = in_flight
        self.acked: list[str] = []
        self.retries = 0
        self._sequence = 0
        self._unacked: list[Batch] = []
        self._round = 0
        self._node: ClusterNode | None = None  # to whom the connection of this round leads
        self._life = 0  # of that node; the connection ends with it
        self._is_broken = False
        self._leader_epoch = -1
        self._is_first = True

    @property
    def is_done(self) -> bool:
        return not self._unacked

    def write(self) -> None:
        count = self.random.randint(1, 3)
        values = [f"{self.producer_id}-{self._sequence + one}" for one in range(count)]
        self._unacked.append(Batch(self._sequence, values))
        self._sequence += count
        self._pump()

    def _pump(self) -> None:
        # The very first batch goes alone: a node that does not know a producer takes any number
        # for its first, since it may have forgotten it.
        most = 1 if self._is_first else self.in_flight
        if self._node is None:
            self._connect()
        if self._node is None:
            self._fail_later(self._round)  # Nothing is sent, so that later nothing is left out.
            return
        for batch in self._unacked[:most]:
            if not batch.is_out and not batch.is_acked and not self._is_broken:
                batch.is_out = True
                self._transmit(batch, self._node)

    def _connect(self) -> None:
        """Choose a leader; clients do not go back to one of an earlier epoch (KIP-320)."""
        node = self.leader(self.topic, self.number)
        partition = None if node is None else node.partition(self.topic, self.number)
        if node is None or partition is None or partition.leader_epoch < self._leader_epoch:
            return
        self._node, self._life, self._leader_epoch = node, node.life, partition.leader_epoch

    def _transmit(self, batch: Batch, node: ClusterNode) -> None:
        turn = self._round
        self.world.clock.call_later(TIMEOUT_MS, partial(self._time_out, batch, turn))
        life = self._life

        def arrive() -> None:
            is_current = turn == self._round or node.is_paused
            if node.is_up and node.life == life and is_current:
                node.clock.deliver(partial(self._append, node, batch, turn))

        # All of one connection takes the same time, so that nothing overtakes anything.
        if self.random.random() < self.world.network.faults.loss / 4:
            self._round += 1  # The connection has broken; what comes after it is lost too.
            self._is_broken = True
            self._fail_later(self._round)
        else:
            self.world.clock.call_later(self.world.network.faults.delay_ms / 2, arrive)

    def _append(self, node: ClusterNode, batch: Batch, turn: int) -> None:
        encoded = encode_batch(
            self.records(node, batch),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=batch.sequence,
        )
        partition = node.partition(self.topic, self.number)
        assert partition is not None
        try:
            if partition.shortage is not None:
                raise node.broker.producing.refused(partition, encoded, partition.shortage)
            topic = node.broker.topics.get(self.topic)
            appended = node.broker.producing.produce(topic, partition, memoryview(encoded))
        except GoQueueError as error:
            self._check_refusal(batch, turn, error)
            self.pass_on(partial(self._answered, batch, turn, error))
            return

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                self.world.watch.look(node, (self.topic, self.number), partition)
            else:
                self._check_refusal(batch, turn, error)
            self.pass_on(partial(self._answered, batch, turn, error))

        if isinstance(appended, Appended):
            partition.when_committed(appended.last_offset, committed)
        else:
            appended.when_committed(committed)

    def _check_refusal(self, batch: Batch, turn: int, error: GoQueueError) -> None:
        is_wrong = isinstance(error, DuplicateSequence | OutOfOrderSequence)
        is_wrong = is_wrong and turn == self._round
        self.world.watch.demand(not is_wrong, f"{batch} is refused: {error}")

    def records(self, node: ClusterNode, batch: Batch) -> list[Record]:
        """What a batch holds that a node is about to store."""
        return [Record(b"", value.encode()) for value in batch.values]

    def _answered(self, batch: Batch, turn: int, error: GoQueueError | None) -> None:
        if batch.is_acked:
            return
        if error is not None:
            self._fail_later(turn)
            return
        self._is_first = False
        for one in self._unacked:
            if one.sequence <= batch.sequence and not one.is_acked:
                one.is_acked = True
                self.acked += one.values
        # The window moves with its oldest batch alone, so that no node has to remember more.
        while self._unacked and self._unacked[0].is_acked:
            del self._unacked[0]
        self._pump()

    def _time_out(self, batch: Batch, turn: int) -> None:
        if not batch.is_acked:
            self._fail_later(turn)

    def _fail_later(self, turn: int) -> None:
        self.world.clock.call_later(RETRY_MS, partial(self._fail, turn))

    def _fail(self, turn: int) -> None:
        if turn != self._round:
            return
        self._round += 1
        self._node, self._is_broken = None, False
        self.retries += 1
        for batch in self._unacked:
            batch.is_out = False
        self._pump()


class HastyWriter(Client):
    """Sends each value once, with acks=1, and may lose what it was told is safe."""

    def __init__(self, world: ClusterWorld, topic: str, number: int) -> None:
        super().__init__(world)
        self.topic = topic
        self.number = number
        self.sent = 0
        self.acked = 0

    def write(self) -> None:
        node = self.leader(self.topic, self.number)
        value = f"hasty-{self.sent}"
        self.sent += 1
        if node is not None:
            self.send(node, partial(self._append, node, value))

    def _append(self, node: ClusterNode, value: str) -> None:
        partition = node.partition(self.topic, self.number)
        assert partition is not None
        encoded = encode_batch([Record(b"", value.encode())])
        try:
            topic = node.broker.topics.get(self.topic)
            appended = node.broker.producing.produce(topic, partition, memoryview(encoded))
        except GoQueueError:
            return
        assert isinstance(appended, Appended)
        partition.when_durable(appended.last_offset, self._kept)

    def _kept(self, error: GoQueueError | None) -> None:
        self.acked += error is None


class Reader(Client):
    """Reads a partition from its beginning, from whoever has a copy, and forgets nothing."""

    def __init__(self, world: ClusterWorld, topic: str, number: int) -> None:
        super().__init__(world)
        self.topic = topic
        self.number = number
        self.position = 0
        self.values: list[str] = []

    def poll(self) -> None:
        node = self.leader(self.topic, self.number)
        if self.random.random() < STALE_CHANCE:
            node = self.random.choice(self.world.up()) if self.world.up() else None
        partition = None if node is None else node.partition(self.topic, self.number)
        if node is None or partition is None:
            return
        try:
            found = partition.read(self.position, bytes_max=READ_BYTES_MAX)
            data = b"" if found is None else found.read()
        except (OffsetOutOfRange, CorruptBatch, StorageFailed):
            return  # This copy is behind, or damaged; that all is well in the end is checked then.
        at = 0
        while at < len(data):
            header = read_header(data, at)
            batch = data[at : at + header.size]
            at += header.size
            if not is_sound(batch):
                self.world.watch.demand(node.is_rotten, f"node {node.number} shows damage")
                return
            if header.base_offset < self.position:
                continue
            if header.base_offset > self.position:
                # Where a batch says that it stands is outside of its checksum.
                self.world.watch.demand(node.is_rotten, f"node {node.number} leaves something out")
                return
            place = (self.topic, self.number)
            self.world.watch.note_committed(place, header, batch, f"node {node.number} to a reader")
            self.values += [(record.value or b"").decode() for record in decode_batch(batch)]
            self.position = header.next_offset


class Committer(Client):
    """Commits how far a reader has come, as a member of a group or without being one."""

    def __init__(self, world: ClusterWorld, group: str, reader: Reader, *, joins: bool) -> None:
        super().__init__(world)
        self.group = group
        self.reader = reader
        self.joins = joins
        self.acked = -1
        self.acks = 0
        self.told = -1
        self.tellings = 0
        self.rejoined = 0
        self._epoch = 0
        self._is_member = False

    def coordinator(self) -> ClusterNode | None:
        up = self.world.up()
        number = up[0].broker.groups.partition_of(self.group) if up else 0
        return self.world.leader_of(OFFSETS_TOPIC, number)

    def commit(self) -> None:
        node = self.coordinator()
        if node is None:
            return
        if self.joins and not self._is_member:
            self._join(node)
            return
        offset = self.reader.position
        call = CommitOffsets(
            group_id=self.group,
            member_id="member" if self.joins else "",
            generation=self._epoch if self.joins else -1,
            offsets=[
                OffsetToCommit(topic=self.reader.topic, partition=self.reader.number, offset=offset)
            ],
        )
        self.send(
            node,
            lambda: node.broker.groups.commit_offsets(call).then(partial(self._committed, offset)),
        )

    def check(self) -> None:
        """Whoever tells an offset knows all that was acknowledged or told before it was asked."""
        up = self.world.up()
        number = up[0].broker.groups.partition_of(self.group) if up else 0
        node = self.leader(OFFSETS_TOPIC, number)
        if node is None:
            return
        groups, known = node.broker.groups, max(self.acked, self.told)

        def confirmed(_: None, error: Exception | None) -> None:
            _raise_surprise(error)
            if error is None:
                found = groups.fetch_offsets(self.group).get(self.reader.topic, {})
                kept = found.get(self.reader.number)
                self._note_told(node, known, -1 if kept is None else kept.offset)

        self.send(node, lambda: groups.confirm(self.group).then(confirmed))

    def _note_told(self, node: ClusterNode, known: int, offset: int) -> None:
        self.world.watch.demand(
            offset >= known,
            f"group {self.group} has committed {known}, and node {node.number} tells {offset}",
        )
        self.told = max(self.told, offset)
        self.tellings += 1

    def _join(self, node: ClusterNode) -> None:
        beat = ConsumerHeartbeat(
            group_id=self.group,
            member_id="member",
            member_epoch=0,
            rebalance_timeout_ms=5_000,
            subscribed_topics=(self.reader.topic,),
            owned=frozenset(),
        )
        self.send(node, lambda: node.broker.groups.consumer_heartbeat(beat).then(self._joined))

    def _joined(self, result: ConsumerHeartbeatResult | None, error: Exception | None) -> None:
        _raise_surprise(error)
        if result is not None:
            self._is_member, self._epoch = True, result.member_epoch
            self.rejoined += 1

    def _committed(self, offset: int, result: OffsetErrors | None, error: Exception | None) -> None:
        _raise_surprise(error)
        if result is not None and not result.errors:
            self.acked = max(self.acked, offset)
            self.acks += 1
        elif isinstance(error, GoQueueError) and not error.retryable:
            self._is_member = False


def _raise_surprise(error: Exception | None) -> None:
    if error is not None and not isinstance(error, GoQueueError):
        raise error
