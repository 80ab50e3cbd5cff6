"""Consume from a queue, publish elsewhere and acknowledge, in one transaction, among crashes.

Each input is done exactly when its outputs are there, and each of those is there once: the one that
is published at once and the one that is delayed. What an abort undoes comes again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.broker.reading.records import Place
from goqueue.broker.schedules import shards as schedule_shards
from goqueue.broker.transactions.ids import Transaction
from goqueue.broker.transactions.publishing import Addressed
from goqueue.loop.promise import start
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

SOURCE, NOW, LATER = "source", "now", "later"
GROUP = "workers"
PARTITIONS = 2
INPUTS = 60
WORKERS = 3
TIMEOUT_MS = 1500
VISIBILITY_MS = 800
DELAYS_MS = (0, 5, 300, 2000)


class Worker:
    """Takes messages, and moves each in a transaction, as far as crashes and whims let it."""

    def __init__(self, world: World, number: int, history: History) -> None:
        self.world = world
        self.name = f"worker-{number}"
        self.history = history
        self._life = -1
        self._is_busy = False

    def step(self, *, is_kind: bool) -> None:
        if self._is_busy and self._life == self.world.disk.life:
            return
        self._life, self._is_busy = self.world.disk.life, True
        life = self._life

        def done(_: object, error: Exception | None) -> None:
            assert life == self.world.disk.life, "a dead node has answered"
            assert error is None or isinstance(error, GoQueueError), error
            self._is_busy = False

        start(self._work(is_kind=is_kind), done)

    async def _work(self, *, is_kind: bool) -> None:
        random, broker = self.world.random, self.world.broker
        received = await broker.queues.receive(
            GROUP,
            SOURCE,
            consumer=self.name,
            messages_max=random.randint(1, 4),
            wait_ms=20,
            visibility_ms=VISIBILITY_MS,
        ).promise
        messages = list(received)
        if not messages:
            return
        for one in messages:
            self.history.delivered(one.record.value or b"")
        name = random.choice([None, self.name])
        transaction = await broker.transacting.begin(name, timeout_ms=TIMEOUT_MS)
        if not is_kind and random.random() < 0.1:
            return  # It has lost interest, before anything was done.
        steps: list[Callable[[], Coroutine[Any, Any, bool]]] = [
            lambda: self._publish(transaction, [one.record.value or b"" for one in messages]),
            lambda: self._ack(transaction, [one.delivery.receipt for one in messages]),
        ]
        random.shuffle(steps)
        for step in steps:
            if not await step():
                await broker.transacting.abort(transaction)
                return
            if not is_kind and random.random() < 0.1:
                return  # It is gone, and the transaction is left open.
        if not is_kind and random.random() < 0.2:
            await broker.transacting.abort(transaction)
            return
        await broker.transacting.commit(transaction)
        if random.random() < 0.2:
            await broker.transacting.commit(transaction)
        for one in messages:
            self.history.committed(one.record.value or b"")

    async def _publish(self, transaction: Transaction, values: list[bytes]) -> bool:
        delay_ms = self.world.random.choice(DELAYS_MS)
        headers = ((DELAY_HEADER, b"%d" % delay_ms),)
        addressed = [Addressed(NOW, Record(one, one)) for one in values]
        addressed += [Addressed(LATER, Record(one, one, headers)) for one in values]
        results = await self.world.broker.transacting.publish(transaction, addressed)
        return all(isinstance(one, Published | Scheduled) for one in results)

    async def _ack(self, transaction: Transaction, receipts: list[str]) -> bool:
        outcomes = await self.world.broker.transacting.ack(transaction, GROUP, receipts)
        return all(one is None for one in outcomes)


class Bystander:
    """A group of its own that acknowledges plainly, in the same partition of the journal."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acked: set[bytes] = set()

    def step(self) -> None:
        def done(_: None, error: Exception | None) -> None:
            assert error is None or isinstance(error, GoQueueError), error

        start(self._work(), done)

    async def _work(self) -> None:
        queues = self.world.broker.queues
        received = await queues.receive(
            "bystanders", SOURCE, consumer="b", messages_max=1, visibility_ms=300
        ).promise
        for one in received:
            value = one.record.value or b""
            assert value not in self.acked, f"seed {self.world.seed}: {value!r} came back"
            outcomes = await queues.ack("bystanders", [one.delivery.receipt])
            if outcomes == [None]:
                self.acked.add(value)


class History:
    """What must be true of what readers see, at every moment and in the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.deliveries = 0
        self._committed: set[bytes] = set()

    def delivered(self, value: bytes) -> None:
        self.deliveries += 1
        told = f"seed {self.world.seed}: {value!r}"
        assert value not in self._committed, f"{told} was committed and came back"
        # Only what is not done is handed out, so none of its outputs may be there yet.
        assert value not in self.outputs(NOW), f"{told} has its output and came back"

    def committed(self, value: bytes) -> None:
        # Its output need not be seen yet: an older transaction may be open in the same partition.
        self._committed.add(value)

    def outputs(self, topic: str) -> Counter[bytes]:
        return Counter(self.world.read_committed(topic))

    def check(self) -> None:
        for topic in (NOW, LATER):
            for value, count in self.outputs(topic).items():
                assert count == 1, f"seed {self.world.seed}: {value!r} is in {topic} {count} times"

    def check_done(self) -> None:
        """An input is done exactly when its output is visible."""
        queues, seen = self.world.broker.queues, self.outputs(NOW)
        queues.inspection.lanes(SOURCE)
        for number in range(PARTITIONS):
            peeked = self.world.wait(
                queues.inspection.peek(GROUP, SOURCE, number, offset=0, count=1000)
            )
            for one in peeked:
                value = one.record.value if one.record is not None else None
                is_done = one.state.state == "done"
                assert is_done == (value in seen), f"seed {self.world.seed}: {value!r} {one.state}"


class Factory(World):
    def read_committed(self, topic: str) -> list[bytes]:
        target = self.broker.topics.get(topic)
        places = [Place(one, one.start_offset) for one in target.partitions]
        reading = self.broker.reads.read(places, records_max=1000, bytes_max=1 << 22)
        assert reading.promise.is_done, "a read that does not wait answers at once"
        found: list[bytes] = []
        reading.promise.then(
            lambda page, _: (
                found.extend(one.value or b"" for _, one in page.records) if page else None
            )
        )
        return found

    def restart(self) -> None:
        """Start again; a power cut may come while the start itself writes."""
        while True:
            try:
                self.start()
                return
            except PowerLost:
                self.crash()

    def fail_somehow(self) -> None:
        if self.random.random() < 0.5:
            self.kill()
        else:
            self.crash()
        self.restart()


def make(seed: int) -> Factory:
    """A node; every second one sums its journals up all the time."""
    world = Factory(
        seed,
        delivery__partitions="1",
        schedules__partitions="2",
        schedules__checkpoint_ms="100ms",
        transactions__state_partitions="2",
    )
    if seed % 2:
        world.stop()
        delivery = replace(world.settings.delivery, snapshot_bytes=200)
        world.settings = replace(world.settings, delivery=delivery)
        world.start()
    return world


@pytest.mark.seeds(12)
def test_each_input_is_acked_exactly_when_its_outputs_are_visible_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_shards, "CHECKPOINT_CHECK_MS", 40)
    world = make(seed)
    world.create(SOURCE, PARTITIONS)
    world.create(NOW, 2)
    world.create(LATER)
    # A message that aborts again and again must not die here; that it may is tested elsewhere.
    world.wait(
        world.broker.queues.groups.create(GROUP, {"deliveries_max": 1000, "visibility_ms": 800})
    )
    inputs = [b"%d" % number for number in range(INPUTS)]
    history = History(world)
    bystander = Bystander(world)
    workers = [Worker(world, number, history) for number in range(WORKERS)]
    for number, value in enumerate(inputs):
        world.wait(
            world.broker.publish(SOURCE, [Record(None, value)], partition=number % PARTITIONS)
        )
    for _ in range(120):
        for worker in workers:
            worker.step(is_kind=False)
        bystander.step()
        world.run_for(world.random.choice([1, 5, 20, 100]))
        if world.random.random() < 0.08:
            world.fail_somehow()
        history.check()
    _finish(world, workers, history, inputs)
    world.stop()
    world.start()
    world.run_for(100)
    history.check_done()
    history.check()


def _finish(world: Factory, workers: list[Worker], history: History, inputs: list[bytes]) -> None:
    """Without crashes and whims everything gets done, and the delayed ones become due."""
    for _ in range(400):
        for worker in workers:
            worker.step(is_kind=True)
        world.run_for(100)
        if len(history.outputs(NOW)) == len(inputs) == len(history.outputs(LATER)):
            break
    world.run_for(3000)
    assert history.outputs(NOW) == Counter(inputs), f"seed {world.seed}"
    assert history.outputs(LATER) == Counter(inputs), f"seed {world.seed}"
    history.check_done()
    assert history.deliveries > len(inputs), "nothing ever came again"
    figures = world.broker.queues.inspection.stats(GROUP, SOURCE)
    assert (figures.ready, figures.in_flight, figures.prepared) == (0, 0, 0)
