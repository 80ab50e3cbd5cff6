"""Queue groups among crashes: nothing acked comes back, nothing is lost, nothing dies twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from goqueue.broker.queues.queues import Receiver
from goqueue.broker.queues.records import Received, ReceivedMessage
from goqueue.model.batch import Record
from goqueue.model.dead_letters import read_origin
from goqueue.model.errors import GoQueueError
from tests.simulation.disk import PowerLost
from tests.simulation.world import World

TOPIC = "orders"
GRAVE = "orders.dlq"
PARTITIONS = 3
ORDERED_GROUP = "two"
GROUPS = ("one", ORDERED_GROUP)
DELIVERIES_MAX = 3
MESSAGES = 120
VISIBILITY_MS = 400
LONGER_MS = 900
Place = tuple[int, int]


@dataclass(eq=False)
class Settlement:
    """One call that settles messages, made in one life of the node or another until answered."""

    verdict: str
    messages: list[ReceivedMessage]
    due_ms: float
    life: int = -1  # in which it was made last


class Consumer:
    """Receives for one group and does with its messages whatever the seed says.

    It settles at once or later, with the receipts that it has, in whichever life of the node.
    """

    def __init__(self, world: World, group: str, name: str, history: History) -> None:
        self.world = world
        self.group = group
        self.name = name
        self.history = history
        self._life = -1
        self._waiting: Receiver | None = None
        self._settlements: dict[Settlement, None] = {}

    def step(self, *, is_kind: bool) -> None:
        """Settle what is due, and ask for messages, unless an answer is under way."""
        life = self.world.disk.life
        for one in list(self._settlements):
            if one.due_ms <= self.world.clock.now_ms() and one.life != life:
                self._call(one)
        if self._waiting is not None and self._life == life and not self._waiting.promise.is_done:
            return
        random = self.world.random
        self._life = life
        self._waiting = self.world.broker.queues.receive(
            self.group,
            TOPIC,
            consumer=self.name,
            messages_max=random.randint(1, 8),
            wait_ms=random.choice([0, 50, 300]),
            visibility_ms=VISIBILITY_MS,
        )

        def received(messages: Received | None, error: Exception | None) -> None:
            assert life == self.world.disk.life, "a dead node has answered"
            if error is not None:
                self.history.check_refusal(error)
                return
            for one in messages or []:
                self.history.delivered(self.group, one)
            if messages:
                self._decide(list(messages), is_kind=is_kind)

        self._waiting.promise.then(received)

    def _decide(self, messages: list[ReceivedMessage], *, is_kind: bool) -> None:
        random = self.world.random
        choice = 0.0 if is_kind else random.random()
        if choice >= 0.92:
            return  # It has forgotten them.
        verdict = "ack"
        if choice >= 0.6:
            verdict = "nack" if choice < 0.75 else "reject" if choice < 0.85 else "extend"
        elif choice >= 0.55:
            verdict = "give_back"  # as a stream does whose client has gone
        wait_ms = 0.0 if is_kind or random.random() < 0.6 else random.uniform(20, 500)
        settlement = Settlement(verdict, messages, self.world.clock.now_ms() + wait_ms)
        self._settlements[settlement] = None
        if not wait_ms:
            self._call(settlement)

    def _call(self, settlement: Settlement) -> None:
        queues, life = self.world.broker.queues, self.world.disk.life
        verdict, messages = settlement.verdict, settlement.messages
        receipts = [one.delivery.receipt for one in messages]
        held = [self.history.is_held(self.group, one) for one in messages]
        is_first, settlement.life = settlement.life < 0, life
        asked_ms = self.world.clock.now_ms()
        try:
            if verdict == "ack":
                promise = queues.ack(self.group, receipts)
            elif verdict == "nack":
                promise = queues.nack(
                    self.group, receipts, delay_ms=self.world.random.choice([0, 200])
                )
            elif verdict == "give_back":
                promise = queues.give_back(self.group, receipts)
            elif verdict == "reject":
                promise = queues.reject(self.group, receipts, reason="broken")
            else:
                promise = queues.extend(self.group, receipts, visibility_ms=LONGER_MS)
        except GoQueueError as error:
            self.history.check_refusal(error)
            settlement.life = -2
            return
        if verdict != "extend":
            self.history.given_back(self.group, messages, is_counted=verdict != "give_back")

        def settled(outcomes: list[GoQueueError | None] | None, error: Exception | None) -> None:
            assert life == self.world.disk.life, "a dead node has answered"
            if outcomes is None:
                assert error is not None
                self.history.check_refusal(error)
                settlement.life = -2
                return
            again: list[ReceivedMessage] = []
            for one, outcome, was_held in zip(messages, outcomes, held, strict=True):
                told = f"seed {self.world.seed}: {verdict} of {self.group} {_place(one)}"
                if outcome is None:
                    if verdict == "ack":
                        self.history.acked[self.group].add(_place(one))
                    elif verdict == "extend":
                        self.history.extended(self.group, one, asked_ms + LONGER_MS)
                elif outcome.retryable:
                    again.append(one)
                else:
                    is_late = not was_held or (verdict == "extend" and not is_first)
                    assert is_late, f"{told} was refused while it is out: {outcome}"
                    assert verdict not in ("nack", "give_back"), (
                        f"{told}: refused after it came again"
                    )
            if again:
                settlement.messages, settlement.life = again, -2
            else:
                del self._settlements[settlement]

        promise.then(settled)


class History:
    """What clients have seen, and what must be true of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acked: dict[str, set[Place]] = {group: set() for group in GROUPS}
        # Until when a message is with somebody at least, and under which receipt.
        self._held: dict[tuple[str, Place], tuple[float, str]] = {}
        self._attempts: dict[tuple[str, Place], int] = {}
        # The life in which a delivery was given back uncounted, and its attempt.
        self._uncounted: dict[tuple[str, Place], tuple[int, int]] = {}
        self._values: dict[Place, bytes | None] = {}
        # Of the group that keeps the order of keys: what was delivered and is not over.
        self._unfinished: dict[tuple[int, bytes | None, int], dict[int, str]] = {}
        self.deliveries = 0

    @staticmethod
    def check_refusal(error: Exception) -> None:
        assert isinstance(error, GoQueueError), error
        assert error.retryable, error

    def delivered(self, group: str, one: ReceivedMessage) -> None:
        place, now_ms = _place(one), self.world.clock.now_ms()
        self.deliveries += 1
        told = f"seed {self.world.seed}: {group} {place}"
        assert place not in self.acked[group], f"{told} was acked and came back"
        until_ms, _ = self._held.get((group, place), (0, ""))
        assert until_ms <= now_ms, f"{told} is with two consumers, {until_ms - now_ms} ms too soon"
        attempt, before = one.delivery.attempt, self._attempts.get((group, place), 0)
        assert attempt > before, f"{told} has attempt {attempt} after {before}"
        life, uncounted = self._uncounted.pop((group, place), (-1, attempt))
        assert attempt == uncounted or life != self.world.disk.life, f"{told} counted {uncounted}"
        self._attempts[group, place] = attempt
        assert self._values.setdefault(place, one.record.value) == one.record.value, told
        self._held[group, place] = (one.delivery.until_ms, one.delivery.receipt)
        if group == ORDERED_GROUP:
            self._check_order(one, told)

    def power_lost(self) -> None:
        """Leases that were not synced are forgotten, where keys have no order."""
        for known in (self._held, self._attempts):
            for group, place in [one for one in known if one[0] != ORDERED_GROUP]:
                del known[group, place]  # type: ignore[attr-defined]

    def _check_order(self, one: ReceivedMessage, told: str) -> None:
        """All earlier messages of the key, in the same lane, are acked, rejected or given up."""
        delivery = one.delivery
        line = self._unfinished.setdefault(_line(one), {})
        # One whose last delivery nobody has seen, because the node fell, is given up all the same.
        ledgers = self.world.broker.queues.groups.queue_of(ORDERED_GROUP, TOPIC).queue.partitions
        ledger = ledgers[delivery.partition].ledger
        earlier = {
            offset: how
            for offset, how in line.items()
            if offset < delivery.offset and not ledger.is_done(offset)
        }
        assert not earlier, f"{told} came before {earlier} of its key"
        line[delivery.offset] = f"attempt {delivery.attempt}"
        if delivery.attempt >= DELIVERIES_MAX:
            del line[delivery.offset]  # It is over after this one, whatever becomes of it.

    def given_back(self, group: str, messages: list[ReceivedMessage], *, is_counted: bool) -> None:
        """Note that nobody holds these; if the delivery does not count, its attempt comes again."""
        for one in messages:
            place = _place(one)
            if not is_counted:
                if self._attempts.get((group, place)) == one.delivery.attempt:
                    self._attempts[group, place] -= 1
                if self.is_held(group, one):
                    self._uncounted[group, place] = (self.world.disk.life, one.delivery.attempt)
            if self._held.get((group, place), (0, ""))[1] == one.delivery.receipt:
                del self._held[group, place]

    def extended(self, group: str, one: ReceivedMessage, until_ms: float) -> None:
        if self._held.get((group, _place(one)), (0, ""))[1] == one.delivery.receipt:
            self._held[group, _place(one)] = (until_ms, one.delivery.receipt)

    def is_held(self, group: str, one: ReceivedMessage) -> bool:
        until_ms, receipt = self._held.get((group, _place(one)), (0, ""))
        return receipt == one.delivery.receipt and until_ms > self.world.clock.now_ms()

    def check_end(self) -> None:
        stored = {
            (partition, record.offset)
            for partition in range(PARTITIONS)
            for record in self.world.consume(TOPIC, partition=partition)
        }
        assert len(stored) >= MESSAGES
        letters = _letters(self.world)
        for group in GROUPS:
            dead = {place for (name, place) in letters if name == group}
            told = f"seed {self.world.seed}: {group}"
            assert all(count == 1 for count in letters.values()), f"{told} buried twice: {letters}"
            assert not dead & self.acked[group], f"{told} acked and buried"
            peeked = [
                one
                for partition in range(PARTITIONS)
                for one in self.world.wait(
                    self.world.broker.queues.inspection.peek(group, TOPIC, partition, count=1000)
                )
            ]
            open_ones = [one.state for one in peeked if one.state.state != "done"]
            assert not open_ones, f"{told} is not at its end: {open_ones}"
            assert self.acked[group] | dead <= stored


def _place(one: ReceivedMessage) -> Place:
    return one.delivery.partition, one.delivery.offset


def _line(one: ReceivedMessage) -> tuple[int, bytes | None, int]:
    return one.delivery.partition, one.record.key, one.delivery.lane


def _letters(world: World) -> Counter[tuple[str, Place]]:
    found: Counter[tuple[str, Place]] = Counter()
    topic = world.broker.topics.find(GRAVE)
    for partition in range(len(topic.partitions) if topic is not None else 0):
        for record in world.consume(GRAVE, partition=partition):
            origin = read_origin(record.headers)
            assert origin is not None
            found[origin.group, (origin.partition, origin.offset)] += 1
    return found


class Writer:
    """Sends numbered messages in random lanes, a few at a time, and repeats what was lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acked = 0

    def step(self) -> None:
        if self.acked >= MESSAGES:
            return
        world, random = self.world, self.world.random
        partition = world.broker.topics.get(TOPIC).partition(random.randrange(PARTITIONS))
        records = [
            Record(
                b"k%d" % random.randrange(4),
                b"%d" % self.acked,
                (("goqueue-priority", b"%d" % random.randrange(5)),)
                if random.random() < 0.5
                else (),
                world.clock.now_ms(),
            )
            for _ in range(random.randint(1, 6))
        ]

        def acked(error: GoQueueError | None) -> None:
            if error is None:
                self.acked += len(records)

        world.append(partition, records, acked)


def _world(seed: int, **settings: str) -> World:
    world = World(
        seed,
        storage__segment_bytes="2KiB",
        storage__index_interval_bytes="64",
        delivery__snapshot_bytes="4KiB",
        delivery__partitions="2",
        delivery__lanes_save_ms="500ms",
        **settings,
    )
    world.create(TOPIC, PARTITIONS)
    for group in GROUPS:
        settings_of = {
            "backoff_ms": 50,
            "deliveries_max": DELIVERIES_MAX,
            "key_order": group == ORDERED_GROUP,
        }
        world.wait(world.broker.queues.groups.create(group, settings_of))
    return world


def _end(world: World, consumers: list[Consumer], history: History) -> None:
    """Let kind consumers take all that is left."""
    quiet = 0
    for _ in range(2_000):
        before = history.deliveries
        for consumer in consumers:
            consumer.step(is_kind=True)
        world.run_for(100)
        quiet = quiet + 1 if history.deliveries == before else 0
        if quiet > 30:
            break
    history.check_end()


@pytest.mark.seeds(40)
def test_every_message_ends_acked_or_dead_once_per_group_whatever_crashes(seed: int) -> None:
    world = _world(seed)
    history, writer = History(world), Writer(world)
    consumers = [
        Consumer(world, group, f"{group}-{number}", history)
        for group in GROUPS
        for number in range(2)
    ]
    crashes, steps = 0, 0
    while writer.acked < MESSAGES or steps < 150:
        steps += 1
        try:
            writer.step()
            for consumer in consumers:
                if world.random.random() < 0.5:
                    consumer.step(is_kind=False)
            if world.random.random() < 0.04 and crashes < 8:
                # Fall in the middle of whatever the disk does next.
                world.disk.crash_at(world.random.randint(0, 14))
            world.run_for(world.random.uniform(0, 40))
            if world.random.random() < 0.03 and crashes < 8:
                raise PowerLost
        except PowerLost:
            crashes += 1
            world.crash()
            history.power_lost()
            world.start()
    world.disk.crash_at(None)
    _end(world, consumers, history)


@pytest.mark.parametrize("fsync", ["every", "interval", "none"])
@pytest.mark.seeds(8)
def test_a_killed_process_forgets_no_ack(seed: int, fsync: str) -> None:
    world = _world(seed, storage__fsync=fsync)
    history, writer = History(world), Writer(world)
    consumers = [Consumer(world, group, group, history) for group in GROUPS]
    for _ in range(150):
        writer.step()
        for consumer in consumers:
            consumer.step(is_kind=False)
        world.run_for(world.random.uniform(0, 40))
        if world.random.random() < 0.04:
            if world.random.random() < 0.3:
                world.stop()
            else:
                world.kill()
            world.start()
    while writer.acked < MESSAGES:
        writer.step()
        world.run_for(20)
    _end(world, consumers, history)


@pytest.mark.seeds(6)
def test_nobody_waits_longer_than_the_bound_beside_a_flood(seed: int) -> None:
    """A flood of critical messages, more than the consumer can take, and a trickle of others."""
    world = World(seed)
    world.create(TOPIC, PARTITIONS, lane_starvation_ms="5000", lane_mode="strict")
    queues = world.broker.queues
    world.wait(queues.receive("one", TOPIC, consumer="anna").promise)
    waits: dict[int, int] = {}
    sent: dict[bytes, int] = {}
    for tick in range(600):
        lanes = [0] * 6 + ([1 + tick // 4 % 4] if tick % 4 == 0 else [])
        for number, lane in enumerate(lanes):
            value = b"%d-%d" % (tick, number)
            record = Record(
                None, value, (("goqueue-priority", b"%d" % lane),), world.clock.now_ms()
            )
            sent[value] = world.clock.now_ms()
            partition = world.broker.topics.get(TOPIC).partition(world.random.randrange(PARTITIONS))
            world.append(partition, [record], lambda error: None)
        world.run_for(100)
        messages = world.wait(queues.receive("one", TOPIC, consumer="anna", messages_max=5).promise)
        for one in messages:
            wait_ms = world.clock.now_ms() - sent[one.record.value or b""]
            waits[one.delivery.lane] = max(waits.get(one.delivery.lane, 0), wait_ms)
        world.wait(queues.ack("one", [one.delivery.receipt for one in messages]))
    assert set(waits) == {0, 1, 2, 3, 4}
    assert all(waits[lane] <= 5000 for lane in (1, 2, 3, 4)), waits
    figures = queues.inspection.stats("one", TOPIC).lanes
    assert all(abs(figures[lane].longest_wait_ms - waits[lane]) <= 200 for lane in range(1, 5))
