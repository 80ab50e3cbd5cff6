"""A query that writes epoch after epoch with many tasks, and what must be seen of it.

Each epoch is a fixed set of numbers. A driver cuts it into parts, by chance and anew at every try;
a task writes its part in a transaction of its own and leaves it prepared; the driver commits the
epoch, and then notes in its checkpoint that it is done. Drivers die, are replaced, and sometimes
only seem to be dead. Whatever happens, each number must be seen once, all from the same try.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.queries import Attempt
from goqueue.partition import Appended
from tests.simulation.transactions_model import OUTPUTS, TIMEOUT_MS, ConnectionLost, Stage

T = TypeVar("T")

QUERY = "totals"
PREPARED_TIMEOUT_MS = 4 * TIMEOUT_MS
NUMBERS = 8  # in each epoch

Prepared = tuple[str, ProducerIdentity]


class Query:
    """The checkpoint, which outlives every driver, and all that was ever promised."""

    def __init__(self, stage: Stage, *, epochs: int) -> None:
        self.stage = stage
        self.random = stage.random
        self.epochs = epochs
        self.checkpoint = 0  # the next epoch
        self.tries = 0
        self.drivers = 0
        self.alive = 0
        self.newest_run = 0
        self.refusals: list[GoQueueError] = []
        self.committed: dict[int, int] = {}  # the try of each epoch whose commit was answered
        self.shown: dict[int, int] = {}  # the try of each epoch of which something was seen
        self.seen: dict[TopicPartition, set[str]] = defaultdict(set)

    @property
    def is_done(self) -> bool:
        return self.checkpoint >= self.epochs

    def start_driver(self) -> None:
        self.drivers += 1
        self.alive += 1

        def done(_: None, error: Exception | None) -> None:
            self.alive -= 1
            if error is not None and not isinstance(error, GoQueueError):
                raise error
            if error is not None:
                self.refusals.append(error)

        start(Driver(self, f"driver-{self.drivers}").live(), done)

    # What must be true

    def check(self) -> None:
        """Of every read, at every moment."""
        everything: list[str] = []
        for name in OUTPUTS:
            values = self.stage.read(name)
            assert self.seen[name] <= set(values), "something visible has disappeared"
            self.seen[name] = set(values)
            everything += values
        numbers = [value.partition("@")[0] for value in everything]
        assert len(numbers) == len(set(numbers)), "something is visible twice"
        for value in everything:
            epoch, attempt = int(value.split(":")[0]), int(value.partition("@")[2])
            assert self.shown.setdefault(epoch, attempt) == attempt, "two tries are visible"
            assert self.committed.get(epoch, attempt) == attempt, "another try was committed"

    def check_settled(self) -> None:
        """When everything has come to rest."""
        self.check()
        shown = {value.partition("@")[0] for values in self.seen.values() for value in values}
        wanted = {
            f"{epoch}:{number}" for epoch in range(self.checkpoint) for number in range(NUMBERS)
        }
        missing = wanted - shown
        assert not missing, f"committed, and not visible: {sorted(missing)}"
        extra_epochs = {int(number.split(":")[0]) for number in shown - wanted}
        # A driver may have died between the commit and its checkpoint, but no further.
        assert extra_epochs <= {self.checkpoint}
        assert len(shown - wanted) in (0, NUMBERS), "an epoch is visible in part"
        for name in OUTPUTS:
            partition = self.stage.partition(name)
            assert partition.last_stable_offset == partition.end_offset, f"{name} is held up"
        transactions = self.stage.world.broker.transactions.all()
        assert transactions == [], "a transaction was left behind"


class Driver:
    """A process that runs the query until it is done, dies, or is turned away."""

    def __init__(self, query: Query, name: str) -> None:
        self.query = query
        self.stage = query.stage
        self.random = query.random
        self.name = name
        self.run = 0

    async def live(self) -> None:
        broker = lambda: self.stage.world.broker  # noqa: E731
        # Half of them have names, and open again before every epoch, as their tasks would.
        name = self.name if self.random.random() < 0.5 else ""
        epoch = self.query.checkpoint
        opened = await self.insist(lambda: broker().epochs.open(QUERY, name))
        self.run = self.query.newest_run = max(self.query.newest_run, opened.run)
        while epoch < self.query.epochs:
            if name:
                opened = await self.insist(lambda: broker().epochs.open(QUERY, name))
                assert opened.run == self.run, "a run keeps its number"
            await self.write_epoch(epoch)
            await self.hang()
            self.query.checkpoint = max(self.query.checkpoint, epoch + 1)
            epoch += 1

    async def write_epoch(self, epoch: int) -> None:
        self.query.tries += 1
        number = self.query.tries
        parts = self.cut(epoch, number)
        # A try may take several goes at a part; only the last one counts.
        tasks = [promised(self.write_part(epoch, part)) for part in parts]
        prepared = [await task for task in tasks]
        await self.hang()
        await self.commit(epoch, number, prepared)

    def cut(self, epoch: int, number: int) -> list[list[str]]:
        values = [f"{epoch}:{one}@{number}" for one in range(NUMBERS)]
        self.random.shuffle(values)
        count = self.random.randint(1, 4)
        return [values[first::count] for first in range(count)]

    async def write_part(self, epoch: int, values: list[str]) -> Prepared:
        while True:
            try:
                return await Task(self, epoch, self.random.getrandbits(60)).write(values)
            except TaskLost:
                continue

    async def commit(self, epoch: int, number: int, prepared: list[Prepared]) -> None:
        outcome = await self.insist(
            lambda: self.stage.world.broker.epochs.commit(
                QUERY, run=self.run, epoch=epoch, prepared=prepared
            )
        )
        assert outcome.epoch >= epoch
        if not outcome.is_repeated:
            committed = self.query.committed.setdefault(epoch, number)
            assert committed == number, "two tries of one epoch were committed"

    async def insist(self, call: Callable[[], Promise[T]]) -> T:
        """Ask until there is an answer other than "later"; die of any other refusal."""
        while True:
            if not self.stage.is_quiet and self.random.random() < 0.01:
                raise ConnectionLost("The driver was killed.")
            try:
                return await self.stage.ask(call)
            except GoQueueError as error:
                if not error.retryable:
                    raise
            await self.stage.sleep(self.random.uniform(1, 100))

    async def hang(self) -> None:
        if not self.stage.is_quiet and self.random.random() < 0.05:
            await self.stage.sleep(self.random.uniform(0, 2 * TIMEOUT_MS))


class TaskLost(Exception):
    """A task died or took too long, so the driver starts it again."""


class Task:
    def __init__(self, driver: Driver, epoch: int, number: int) -> None:
        self.driver = driver
        self.stage = driver.stage
        self.random = driver.random
        self.name = Attempt(QUERY, driver.run, epoch, f"task-{number}").transactional_id
        self.sequences: dict[TopicPartition, int] = defaultdict(int)

    async def write(self, values: list[str]) -> Prepared:
        transactions = lambda: self.stage.world.broker.transactions  # noqa: E731
        identity = await self.driver.insist(
            lambda: transactions().initialise(self.name, timeout_ms=TIMEOUT_MS)
        )
        for value in values:
            await self.produce(identity, self.random.choice(OUTPUTS), value)
            self.die_perhaps()
        await self.driver.insist(
            lambda: transactions().prepare(self.name, identity, timeout_ms=PREPARED_TIMEOUT_MS)
        )
        self.die_perhaps()
        return self.name, identity

    async def produce(self, identity: ProducerIdentity, name: TopicPartition, value: str) -> None:
        sequence = self.sequences[name]
        self.sequences[name] += 1

        def send() -> Promise[None]:
            broker = self.stage.world.broker
            batch = encode_batch(
                [Record(None, value.encode(), timestamp_ms=self.stage.world.clock.now_ms())],
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
            partition = self.stage.partition(name)
            stored = broker.producing.produce(
                broker.topics.get(name.topic),
                partition,
                memoryview(batch),
                transactional_id=self.name,
                joins_transaction=True,
            )
            sent: Promise[None] = Promise()
            if isinstance(stored, Appended):
                partition.when_committed(stored.last_offset, lambda e: sent.settle(None, e))
            else:
                stored.when_committed(lambda error: sent.settle(None, error))
            return sent

        await self.driver.insist(send)

    def die_perhaps(self) -> None:
        if not self.stage.is_quiet and self.random.random() < 0.01:
            raise TaskLost


def promised(coroutine: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    promise: Promise[T] = Promise()
    start(coroutine, promise.settle)
    return promise
