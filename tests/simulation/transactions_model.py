"""Applications that consume, transform and produce in transactions, and what must be seen of it.

Each application reads positions 0, 1, 2 … of an input, and writes for each position one record to
several partitions, together with its next position as a group's offset. Whatever crashes, every
position must in the end be there exactly once, whole.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from goqueue.broker.reading.fetching import Fetched, Wanted
from goqueue.broker.streams.coordinators import Groups
from goqueue.client.aborted import AbortedTransaction, AbortedTransactions
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record, add_sequence, decode_batch, encode_batch, read_header
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition import Appended, Partition
from tests.simulation.world import World

T = TypeVar("T")

INPUT = "input"
OUTPUTS = tuple(TopicPartition(topic, number) for topic in ("orders", "bills") for number in (0, 1))
TIMEOUT_MS = 3_000


class ConnectionLost(GoQueueError):
    """The node went away before it answered."""

    code = "connection_lost"
    retryable = True


class GivenUp(ConnectionLost):
    """Whoever asked does not ask again, and does not know whether it was done."""


class Stage:
    """The world, the requests that wait for its node, and all that was ever promised."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(world.seed)
        self.is_quiet = False  # no more hanging and dying
        self._open: dict[Promise[Any], None] = {}  # in order, or a seed would not replay
        self.committable: set[str] = set()  # attempts whose commit was asked for
        self.impossible: set[str] = set()  # whose commit was asked for by who was replaced before
        self.committed: set[str] = set()  # attempts whose commit was answered
        self.aborted: set[str] = set()  # attempts whose abort was answered
        self.seen: dict[TopicPartition, set[str]] = defaultdict(set)
        self.stable: dict[TopicPartition, int] = defaultdict(int)
        self.sent: dict[TopicPartition, dict[str, set[str]]] = defaultdict(dict)
        self._decoded: dict[bytes, list[str]] = {}  # the same batches are read again and again

    def ask(self, call: Callable[[], Promise[T]]) -> Promise[T]:
        """Send a request; its answer may be that the connection was lost."""
        answer: Promise[T] = Promise()
        self._open[answer] = None

        def done(value: T | None, error: Exception | None) -> None:
            if answer in self._open:
                del self._open[answer]
                # As over a network: it arrives some time later, in a turn of its own.
                self.world.clock.call_later(0.05, lambda: answer.settle(value, error))

        def arrive() -> None:
            if answer not in self._open:
                return
            try:
                call().then(done)
            except GoQueueError as error:
                done(None, error)

        self.world.clock.call_later(0.05, arrive)
        return answer

    def lose_applications(self) -> None:
        """They stop with the node, and nobody comes back."""
        self._open.clear()

    def lose_connections(self) -> None:
        """The node is gone; applications ask again, and find another or the same."""
        lost, self._open = self._open, {}
        for answer in lost:
            self.world.clock.call_later(
                self.random.uniform(0, 50),
                lambda answer=answer: answer.reject(ConnectionLost("The node is gone.")),
            )

    def sleep(self, ms: float) -> Promise[None]:
        slept: Promise[None] = Promise()
        self.world.clock.call_later(ms, lambda: slept.resolve(None))
        return slept

    def partition(self, name: TopicPartition) -> Partition:
        return self.world.broker.topics.get(name.topic).partition(name.partition)

    def groups_for(self, group_id: str) -> Groups:
        """Those of the node that a client believes to coordinate a group."""
        return self.world.broker.groups

    def offset_of(self, group_id: str, *, is_stable: bool = False) -> Promise[int]:
        """Where a group goes on, as a coordinator tells."""
        groups = self.groups_for(group_id)

        async def run() -> int:
            await groups.confirm(group_id)
            found = groups.fetch_offsets(group_id, require_stable=is_stable).get(INPUT, {}).get(0)
            return 0 if found is None else found.offset

        told: Promise[int] = Promise()
        start(run(), told.settle)
        return told

    def wait_for_offset(self, group_id: str) -> int:
        return self.world.wait(self.offset_of(group_id))

    # What a reader who wants only what is committed sees

    def read(self, name: TopicPartition) -> list[str]:
        values: list[str] = []
        partition, offset = self.partition(name), 0
        while True:
            found: list[Fetched] = []
            wanted = Wanted(partition, offset, 1 << 20, is_committed_only=True)
            self.world.broker.reads.fetch(
                [wanted], bytes_min=0, bytes_max=1 << 20, wait_ms=0, done=found.extend
            )
            (result,) = found
            assert result.error is None
            if result.batches is None:
                return values
            aborted = AbortedTransactions(
                AbortedTransaction(one.first_offset, one.producer_id) for one in result.aborted
            )
            data, position = result.batches.read(), 0
            while position < len(data):
                header = read_header(data, position)
                batch = data[position : position + header.size]
                position += header.size
                if not aborted.covers(header, batch) and not header.is_control:
                    values += self._values(bytes(batch))
                offset = header.next_offset

    def _values(self, batch: bytes) -> list[str]:
        """What a batch holds."""
        if batch not in self._decoded:
            records = decode_batch(batch)
            self._decoded[batch] = [(record.value or b"").decode() for record in records]
        return self._decoded[batch]

    def held_up(self, name: TopicPartition) -> set[str]:
        """What is stored beyond the last stable offset: others' transactions hold it up."""
        partition = self.partition(name)
        stable, end = partition.last_stable_offset, partition.high_watermark
        return {
            (record.value or b"").decode()
            for header, batch in partition.log.batches(stable, until_offset=end)
            if not header.is_control
            for record in decode_batch(batch)
        }

    def check(self) -> None:
        """What must be true of every read at every moment."""
        for name in OUTPUTS:
            values = self.read(name)
            assert len(values) == len(set(values)), f"{name} shows something twice"
            shown: dict[str, set[str]] = defaultdict(set)
            for value in values:
                shown[value.rpartition("/")[0]].add(value)
            attempts = set(shown)
            assert attempts <= self.committable, "something is visible that nobody committed"
            assert not attempts & self.aborted, "something is visible that was aborted"
            held_up = self.held_up(name)
            for attempt in attempts:
                missing = self.sent[name][attempt] - shown[attempt]
                assert missing <= held_up, f"{attempt} is visible in part"
            assert self.seen[name] <= attempts, "something visible has disappeared"
            self.seen[name] = attempts
            stable = self.partition(name).last_stable_offset
            assert stable >= self.stable[name], f"the last stable offset of {name} moved back"
            self.stable[name] = stable

    def note_end(self, instance: Instance, attempt: str, *, is_commit: bool) -> None:
        """Whoever is told that its transaction is ended has not been replaced before."""
        newest = instance.application.newest
        assert newest == instance.number, "a fenced producer ended its transaction"
        (self.committed if is_commit else self.aborted).add(attempt)

    def check_settled(self, applications: list[Application]) -> None:
        """What must be true when everything has come to rest."""
        self.check()
        shown = {name: self.seen[name] for name in OUTPUTS}
        everything = set().union(*shown.values())
        assert self.committed <= everything, "a commit was answered and is not visible"
        for attempt in everything:
            for name in OUTPUTS:
                assert (attempt in self.sent[name]) == (attempt in shown[name]), (
                    f"{attempt} is not visible everywhere"
                )
        for application in applications:
            positions = sorted(
                int(attempt.split(":")[1])
                for attempt in everything
                if attempt.startswith(f"{application.name}:")
            )
            offset = application.committed_offset()
            assert positions == list(range(offset)), f"{application.name}: {positions} {offset}"
        for name in OUTPUTS:
            partition = self.partition(name)
            assert partition.last_stable_offset == partition.end_offset, f"{name} is held up"


class Application:
    """A name, and the instances that live under it, one after the other or at the same time."""

    def __init__(self, stage: Stage, name: str, *, bumps_epoch: bool, positions: int) -> None:
        self.stage = stage
        self.name = name
        self.group_id = f"group-{name}"
        self.bumps_epoch = bumps_epoch
        self.positions = positions
        self.attempts = 0
        self.instances = 0
        self.alive = 0
        self.newest = 0  # the instance that was initialised last
        self.identity = ProducerIdentity(-1, -1)  # the newest that anybody was told
        self.refusals: list[GoQueueError] = []

    @property
    def is_done(self) -> bool:
        try:
            return self.committed_offset() >= self.positions
        except GoQueueError as error:
            if not error.retryable:
                raise
            return False  # Nobody can tell now.

    def committed_offset(self) -> int:
        return self.stage.wait_for_offset(self.group_id)

    def note_identity(self, identity: ProducerIdentity) -> None:
        is_other = identity.producer_id != self.identity.producer_id
        if is_other or identity.epoch > self.identity.epoch:
            self.identity = identity

    def is_replaced(self, identity: ProducerIdentity) -> bool:
        """Whether somebody has been told a later epoch: nothing may come of this one any more."""
        is_same = identity.producer_id == self.identity.producer_id
        return is_same and identity.epoch < self.identity.epoch

    def start_instance(self) -> None:
        self.instances += 1
        self.alive += 1
        number = self.instances

        def done(_: None, error: Exception | None) -> None:
            self.alive -= 1
            if error is not None and not isinstance(error, GoQueueError):
                raise error
            if error is not None:
                self.refusals.append(error)

        start(Instance(self, number).live(), done)


class Instance:
    """A process that runs the application until it is told to stop, or dies."""

    def __init__(self, application: Application, number: int) -> None:
        self.application = application
        self.stage = application.stage
        self.random = self.stage.random
        self.number = number
        self.name = application.name
        self.identity = ProducerIdentity(-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.waits: bool | None = None  # for participants to know of an end; `None`: by chance

    async def live(self) -> None:
        transactions = lambda: self.stage.world.broker.transactions  # noqa: E731
        self.identity = await self.insist(
            lambda: transactions().initialise(self.name, timeout_ms=TIMEOUT_MS)
        )
        self.application.newest = self.number
        self.application.note_identity(self.identity)
        position = await self.position()
        while position < self.application.positions:
            is_commit = self.stage.is_quiet or self.random.random() < 0.7
            await self.transact(position, is_commit=is_commit)
            position += is_commit

    async def position(self) -> int:
        group_id = self.application.group_id
        return await self.insist(lambda: self.stage.offset_of(group_id, is_stable=True))

    async def transact(
        self, position: int, *, is_commit: bool, places: Sequence[TopicPartition] = ()
    ) -> None:
        stage, application = self.stage, self.application
        application.attempts += 1
        attempt = f"{self.name}:{position}:{application.attempts}"
        places = places or self.random.sample(OUTPUTS, self.random.randint(1, len(OUTPUTS)))
        for name in places:
            count = self.random.randint(1, 3)
            stage.sent[name][attempt] = {f"{attempt}/{number}" for number in range(count)}
        if not application.bumps_epoch:
            await self.insist(
                lambda: stage.world.broker.transactions.add_partitions(
                    self.name, self.identity, places
                )
            )
        for name in places:
            for value in sorted(stage.sent[name][attempt]):
                await self.produce(name, value, gives_up=not is_commit)
        await self.hang()
        await self.commit_offset(position + 1)
        await self.hang()
        await self.end(attempt, is_commit=is_commit)

    async def produce(self, name: TopicPartition, value: str, *, gives_up: bool) -> None:
        """Write a record; one that is to be aborted may be given up, as librdkafka does.

        Its sequence number is then that of the next record, although the broker may have stored it.
        """
        sequence = self.sequences.get(name, 0)
        self.sequences[name] = add_sequence(sequence, 1)
        stage = self.stage

        def send() -> Promise[None]:
            broker = stage.world.broker
            now_ms = stage.world.clock.now_ms()
            batch = encode_batch(
                [Record(None, value.encode(), timestamp_ms=now_ms)],
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
            partition = stage.partition(name)
            stored = broker.producing.produce(
                broker.topics.get(name.topic),
                partition,
                memoryview(batch),
                transactional_id=self.name,
                joins_transaction=self.application.bumps_epoch,
            )
            sent: Promise[None] = Promise()
            if isinstance(stored, Appended):
                partition.when_committed(stored.last_offset, lambda e: sent.settle(None, e))
            else:
                stored.when_committed(lambda error: sent.settle(None, error))
            return sent

        try:
            await self.insist(send, gives_up=gives_up)
        except GivenUp:
            self.sequences[name] = sequence

    async def commit_offset(self, offset: int) -> None:
        stage, group_id = self.stage, self.application.group_id
        call = CommitOffsets(
            group_id=group_id, offsets=[OffsetToCommit(topic=INPUT, partition=0, offset=offset)]
        )
        if not self.application.bumps_epoch:
            await self.insist(
                lambda: stage.world.broker.transactions.add_group(
                    self.name, self.identity, group_id
                )
            )
        await self.insist(
            lambda: stage.world.broker.transactions.commit_offsets(
                self.name,
                self.identity,
                call,
                joins_transaction=self.application.bumps_epoch,
            )
        )

    async def end(self, attempt: str, *, is_commit: bool) -> None:
        stage, identity = self.stage, self.identity
        waits = self.random.random() < 0.5 if self.waits is None else self.waits
        if is_commit:
            is_late = self.application.is_replaced(identity)
            (stage.impossible if is_late else stage.committable).add(attempt)

        def end() -> Promise[ProducerIdentity]:
            transactions = stage.world.broker.transactions
            ending = transactions.finish if waits else transactions.end
            return ending(
                self.name,
                identity,
                is_commit=is_commit,
                bumps_epoch=self.application.bumps_epoch,
            )

        self.identity = await self.insist(end)
        self.application.note_identity(self.identity)
        stage.note_end(self, attempt, is_commit=is_commit)
        if self.identity != identity:
            assert self.application.bumps_epoch
            self.sequences.clear()

    async def insist(self, call: Callable[[], Promise[T]], *, gives_up: bool = False) -> T:
        """Ask until there is an answer other than "later"; die of any other refusal.

        With `gives_up` a request without an answer is not repeated.
        """
        while True:
            await self.die_perhaps()
            try:
                return await self.stage.ask(call)
            except GoQueueError as error:
                if gives_up and isinstance(error, ConnectionLost):
                    raise GivenUp("Nobody asks again.") from error
                if not error.retryable:
                    raise
            await self.stage.sleep(self.random.uniform(1, 100))

    async def hang(self) -> None:
        if not self.stage.is_quiet and self.random.random() < 0.05:
            await self.stage.sleep(self.random.uniform(0, 2 * TIMEOUT_MS))

    async def die_perhaps(self) -> None:
        if not self.stage.is_quiet and self.random.random() < 0.01:
            raise ConnectionLost("The application was killed.")
