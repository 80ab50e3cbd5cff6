"""What clients of queue groups do to a cluster, and what must be true of what they see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from goqueue.broker.queues.queues import Receiver
from goqueue.broker.queues.records import Received, ReceivedMessage
from goqueue.delivery.redrive import LEDGER_GROUP, RedriveOrder
from goqueue.loop.promise import promised
from goqueue.model.batch import Record, decode_batch, encode_batch
from goqueue.model.dead_letters import read_origin
from goqueue.model.errors import GoQueueError
from goqueue.model.names import DELIVERY_TOPIC
from goqueue.partition import Appended
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

TOPIC = "orders"
GRAVE = "orders.dlq"
PARTITIONS = 2
GROUPS = ("one", "two")
DELIVERIES_MAX = 3
VISIBILITY_MS = 400
VISIBILITIES_MS = (400, 400, 3_000)
LONGER_MS = 2_000
QUIET_STEPS = 150  # of 100 ms: a call that got lost is given up after ten seconds
GONE_MS = 3_000  # a client that has no answer by then asks again
Place = tuple[int, int]


class Held(NamedTuple):
    """A lease: until when it holds at least, by the clock of the world, and its receipt."""

    until_ms: float
    receipt: str


def owner_of(world: ClusterWorld, group: str) -> ClusterNode | None:
    """The node that owns a group; one that does not know of its successor yet is none."""
    for node in world.up():
        fact = node.broker.topics.facts.queue_groups().get(group)
        if fact is not None:
            number = node.broker.queues.journal.number_of(fact.id.hex())
            return world.leader_of(DELIVERY_TOPIC, number)
    return None


def records_of(world: ClusterWorld, topic: str) -> list[tuple[int, Record]]:
    """All that is in a topic, by partition, as its leaders have it."""
    found: list[tuple[int, Record]] = []
    some = world.up()[0].broker.topics.find(topic)
    for number in range(len(some.partitions) if some is not None else 0):
        leader = world.leader_of(topic, number)
        assert leader is not None
        partition = leader.broker.topics.get(topic).partition(number)
        batches = partition.log.batches(partition.start_offset, until_offset=partition.end_offset)
        for header, batch in batches:
            if not header.is_control:
                found += [(number, record) for record in decode_batch(batch)]
    return found


class History:
    """What clients of the groups of a topic have seen, and what must be true of it.

    Nothing here depends on which node answered: an owner that does not know of its successor may
    neither deliver what is done there nor what is with somebody there.
    """

    def __init__(self, world: ClusterWorld, topic: str = TOPIC) -> None:
        self.world = world
        self.topic = topic
        self.acked: dict[str, set[Place]] = {group: set() for group in GROUPS}
        self.seen: dict[str, set[Place]] = {group: set() for group in GROUPS}
        self.deliveries = 0
        self.settled_after_failover = 0
        self.failures: Counter[str] = Counter()
        self._held: dict[tuple[str, Place], Held] = {}
        self._attempts: dict[tuple[str, Place], int] = {}
        # Acks and rejections that were refused, by the attempt whose receipt they had.
        self._refused: dict[tuple[str, Place], int] = {}
        self._values: dict[Place, bytes | None] = {}

    def delivered(self, group: str, one: ReceivedMessage, node: ClusterNode) -> None:
        place, now_ms = place_of(one), self.world.clock.now_ms()
        self.deliveries += 1
        told = f"seed {self.world.seed}: {group} {place} at node {node.number}"
        assert self._values.setdefault(place, one.record.value) == one.record.value, told
        assert place not in self.acked[group], f"{told} was acked and came back"
        held = self._held.get((group, place))
        assert held is None or held.until_ms <= now_ms, (
            f"{told} is with two consumers: {held.until_ms - now_ms} ms before its time"
        )
        attempt, before = one.delivery.attempt, self._attempts.get((group, place), 0)
        assert attempt > before, f"{told} has attempt {attempt} after {before}"
        self._attempts[group, place] = attempt
        left_ms = one.delivery.until_ms - node.clock.monotonic_ms()
        assert left_ms > 0, f"{told} was delivered when its lease was over"
        self._held[group, place] = Held(now_ms + left_ms, one.delivery.receipt)
        self.seen[group].add(place)

    def given_back(
        self, group: str, messages: Sequence[ReceivedMessage], *, is_counted: bool
    ) -> None:
        """A call that ends these leases is on its way; when it is carried out is not known.

        If the delivery does not count, its attempt may come again.
        """
        for one in messages:
            known = (group, place_of(one))
            if not is_counted and self._attempts.get(known) == one.delivery.attempt:
                self._attempts[known] -= 1
            held = self._held.get((group, place_of(one)))
            if held is not None and held.receipt == one.delivery.receipt:
                del self._held[group, place_of(one)]

    def extended(self, group: str, one: ReceivedMessage, until_ms: float) -> None:
        held = self._held.get((group, place_of(one)))
        if held is not None and held.receipt == one.delivery.receipt:
            self._held[group, place_of(one)] = held._replace(until_ms=until_ms)

    def is_held(self, group: str, one: ReceivedMessage) -> bool:
        """Whether the lease of a receipt goes on, whatever happened to nodes meanwhile."""
        held = self._held.get((group, place_of(one)))
        is_same = held is not None and held.receipt == one.delivery.receipt
        return held is not None and is_same and held.until_ms > self.world.clock.now_ms()

    def answered(self, group: str, one: ReceivedMessage) -> None:
        """A node has said that an ack is safe: every owner knows from then on."""
        self.acked[group].add(place_of(one))

    def refused(self, group: str, one: ReceivedMessage) -> None:
        """An ack or a rejection came too late: then the message was given to somebody else."""
        self._refused[group, place_of(one)] = one.delivery.attempt

    def check_end(self) -> None:
        letters: Counter[tuple[str, Place]] = Counter()
        for _, record in records_of(self.world, f"{self.topic}.dlq"):
            origin = read_origin(record.headers)
            assert origin is not None
            letters[origin.group, (origin.partition, origin.offset)] += 1
        twice = [one for one, count in letters.items() if count > 1]
        assert not twice, f"seed {self.world.seed}: {twice} buried twice"
        stored = {(number, record.offset) for number, record in records_of(self.world, self.topic)}
        for group in GROUPS:
            told = f"seed {self.world.seed}: {group}"
            dead = {place for name, place in letters if name == group}
            assert not dead & self.acked[group], f"{told} acked and buried"
            assert dead | self.acked[group] <= stored, f"{told} knows what is not stored"
            for (name, place), attempt in self._refused.items():
                if name == group and place not in dead:
                    last = self._attempts[group, place]
                    assert last > attempt, f"{told} {place} was settled, and that was refused"
            lost = stored - dead - self.seen[group]
            assert not lost, f"{told} was never given {lost}"
            node = owner_of(self.world, group)
            assert node is not None
            for number in range(PARTITIONS):
                seen = self.world.wait(
                    node.broker.queues.inspection.peek(
                        group, self.topic, number, offset=0, count=1000
                    )
                )
                open_ones = [one.state for one in seen if one.state.state != "done"]
                assert not open_ones, f"{told} is not at its end: {open_ones}"


def place_of(one: ReceivedMessage) -> Place:
    return one.delivery.partition, one.delivery.offset


@dataclass(eq=False)
class Settlement:
    """One call that settles messages, made until it is answered, by whichever node."""

    verdict: str
    messages: list[ReceivedMessage]
    due_ms: float
    received_from: tuple[int, int]  # the node and its life
    asked_ms: float = -1.0
    calls: int = 0


class Consumer:
    """Receives for one group from whoever owns it, and does whatever the seed says.

    It settles at once or later, with the receipts that it has, at whoever owns the group then.
    """

    def __init__(self, world: ClusterWorld, group: str, name: str, history: History) -> None:
        self.world = world
        self.group = group
        self.name = name
        self.history = history
        self._waiting: Receiver | None = None
        self._asked_at = 0.0
        self._settlements: dict[Settlement, None] = {}

    def step(self, *, is_kind: bool) -> None:
        """Settle what is due, and ask for messages unless an answer may be under way."""
        random, now_ms = self.world.random, self.world.clock.now_ms()
        for one in list(self._settlements):
            is_asked = one.calls and now_ms - one.asked_ms < GONE_MS
            if one.due_ms <= now_ms and not is_asked:
                self._call(one)
        is_asking = self._waiting is not None and not self._waiting.promise.is_done
        if is_asking and now_ms - self._asked_at < GONE_MS:
            return
        node = owner_of(self.world, self.group)
        if random.random() < 0.2 or node is None:
            node = random.choice(self.world.up() or [None])
        if node is None:
            return
        self._asked_at = now_ms
        life = node.life
        try:
            self._waiting = node.broker.queues.receive(
                self.group,
                self.history.topic,
                consumer=self.name,
                messages_max=random.randint(1, 8),
                wait_ms=random.choice([0, 50, 300]),
                visibility_ms=VISIBILITY_MS if is_kind else random.choice(VISIBILITIES_MS),
            )
        except GoQueueError as error:
            self._note(error)
            return

        def received(messages: Received | None, error: Exception | None) -> None:
            assert node.is_up
            assert life == node.life, "a dead node has answered"
            if error is not None:
                self._note(error)
                return
            for one in messages or ():
                self.history.delivered(self.group, one, node)
            if messages:
                self._decide(node, list(messages), is_kind=is_kind)

        self._waiting.promise.then(received)

    def _note(self, error: Exception) -> None:
        assert isinstance(error, GoQueueError), error
        assert error.retryable, repr(error)
        self.history.failures[error.code] += 1

    def _decide(self, node: ClusterNode, messages: list[ReceivedMessage], *, is_kind: bool) -> None:
        random, now_ms = self.world.random, self.world.clock.now_ms()
        choice = 0.0 if is_kind else random.random()
        if choice >= 0.92:
            return  # It has forgotten them.
        verdict = "ack"
        if choice >= 0.55:
            verdict = "nack" if choice < 0.7 else "reject" if choice < 0.82 else "extend"
        elif choice >= 0.5:
            verdict = "give_back"  # as a stream does whose client has gone
        wait_ms = 0.0 if is_kind or random.random() < 0.5 else random.uniform(50, 3_000)
        source = (node.number, node.life)
        settlement = Settlement(verdict, messages, now_ms + wait_ms, source)
        self._settlements[settlement] = None
        if not wait_ms:
            self._call(settlement)

    def _call(self, settlement: Settlement) -> None:
        """Have it carried out by whoever owns the group now, if anybody does."""
        node = owner_of(self.world, self.group)
        if node is None:
            return
        verdict, messages = settlement.verdict, settlement.messages
        receipts = [one.delivery.receipt for one in messages]
        held = [self.history.is_held(self.group, one) for one in messages]
        is_first, asked_ms = not settlement.calls, self.world.clock.now_ms()
        settlement.asked_ms = asked_ms
        settlement.calls += 1
        number, life, queues = settlement.calls, node.life, node.broker.queues
        try:
            if verdict == "ack":
                promise = queues.ack(self.group, receipts)
            elif verdict == "nack":
                promise = queues.nack(self.group, receipts, delay_ms=0)
            elif verdict == "give_back":
                promise = queues.give_back(self.group, receipts)
            elif verdict == "reject":
                promise = queues.reject(self.group, receipts, reason="broken")
            else:
                promise = queues.extend(self.group, receipts, visibility_ms=LONGER_MS)
        except GoQueueError as error:
            self._note(error)
            settlement.asked_ms = -GONE_MS
            return
        if verdict != "extend":
            self.history.given_back(self.group, messages, is_counted=verdict != "give_back")

        def settled(outcomes: list[GoQueueError | None] | None, error: Exception | None) -> None:
            assert life == node.life, "a dead node has answered"
            if settlement not in self._settlements or number != settlement.calls:
                return
            if error is not None:
                self._note(error)
                settlement.asked_ms = -GONE_MS
                return
            assert outcomes is not None
            if settlement.received_from != (node.number, node.life):
                self.history.settled_after_failover += 1
            retried: list[ReceivedMessage] = []
            for one, outcome, was_held in zip(messages, outcomes, held, strict=True):
                told = f"seed {self.world.seed}: {verdict} of {self.group} {place_of(one)}"
                if outcome is None:
                    if verdict == "ack":
                        self.history.answered(self.group, one)
                    elif verdict == "extend":
                        until_ms = asked_ms + LONGER_MS
                        self.history.extended(self.group, one, until_ms)
                elif outcome.retryable:
                    retried.append(one)
                else:
                    is_late = not was_held or (verdict == "extend" and not is_first)
                    assert is_late, f"{told} was refused while it is out: {outcome}"
                    assert verdict not in ("nack", "give_back"), f"{told}: refused after it came"
                    if verdict in ("ack", "reject"):
                        self.history.refused(self.group, one)
            if retried:
                settlement.messages, settlement.asked_ms = retried, -GONE_MS
            else:
                del self._settlements[settlement]

        promise.then(settled)


class Writer:
    """Sends messages in random lanes to whoever leads."""

    def __init__(self, world: ClusterWorld, topic: str = TOPIC) -> None:
        self.world = world
        self.topic = topic
        self.sent = 0
        self.acked = 0

    def step(self) -> None:
        random = self.world.random
        number = random.randrange(PARTITIONS)
        node = self.world.leader_of(self.topic, number)
        if node is None:
            return
        topic = node.broker.topics.get(self.topic)
        partition = topic.partition(number)
        headers = (("goqueue-priority", b"%d" % random.randrange(5)),)
        records = [
            Record(b"k", b"%d" % (self.sent + one), headers if random.random() < 0.5 else ())
            for one in range(random.randint(1, 4))
        ]
        self.sent += len(records)
        try:
            appended = node.broker.producing.produce(
                topic, partition, memoryview(encode_batch(records))
            )
        except GoQueueError:
            return
        assert isinstance(appended, Appended)

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                self.acked += len(records)

        partition.when_committed(appended.last_offset, committed)


def begin(seed: int) -> ClusterWorld:
    """Three nodes, each of which has a copy of everything."""
    world = ClusterWorld(seed, delivery__snapshot_bytes="4KiB", delivery__lanes_save_ms="500ms")
    world.heal()
    world.create(TOPIC, partitions=PARTITIONS, min_insync_replicas="2")
    create_groups(world)
    return world


def create_groups(world: ClusterWorld) -> None:
    for group in GROUPS:
        node = world.random.choice(world.up())
        world.wait(
            node.broker.queues.groups.create(
                group, {"backoff_ms": 50, "deliveries_max": DELIVERIES_MAX}
            )
        )
    world.run_until(lambda: all(owner_of(world, group) is not None for group in GROUPS))


def begin_far_away(seed: int, **settings: str) -> ClusterWorld:
    """Five nodes with three copies of each partition, none of them where a group is owned."""
    settings |= {"delivery__snapshot_bytes": "4KiB", "delivery__lanes_save_ms": "500ms"}
    world = ClusterWorld(seed, node_count=5, **settings)
    world.heal()
    create_groups(world)
    owners = {owner_of(world, group) for group in GROUPS}
    others = [number for number, node in world.nodes.items() if node not in owners][:3]
    world.wait(
        world.up()[0].broker.topics.create(
            TOPIC,
            partition_count=PARTITIONS,
            settings={"min_insync_replicas": "2"},
            assignment=tuple((*others[one:], *others[:one]) for one in range(PARTITIONS)),
        )
    )
    world.run_until(
        lambda: all(world.leader_of(TOPIC, number) is not None for number in range(PARTITIONS))
    )
    world.run_until(lambda: all(one.broker.topics.find(TOPIC) for one in world.up()))
    return world


def drain(world: ClusterWorld, consumers: list[Consumer], history: History) -> None:
    """Let kind consumers take all that is left."""
    quiet = 0
    for _ in range(400):
        before = history.deliveries
        for consumer in consumers:
            consumer.step(is_kind=True)
        world.run_for(100)
        quiet = quiet + 1 if history.deliveries == before else 0
        if quiet > QUIET_STEPS:
            break
    history.check_end()


def consumers_of(world: ClusterWorld, history: History) -> list[Consumer]:
    return [
        Consumer(world, group, f"{group}-{number}", history)
        for group in GROUPS
        for number in (1, 2)
    ]


def strike(world: ClusterWorld) -> None:
    """Something happens to the cluster, as the seed decides."""
    chance, faults = world.random, world.network.faults
    faults.loss = chance.choice([0.0, 0.0, 0.05, 0.2])
    faults.duplication = chance.choice([0.0, 0.1])
    faults.delay_ms = chance.choice([1.0, 5.0, 50.0])
    owner = owner_of(world, chance.choice(GROUPS))
    others = list(world.nodes.values())
    victim = owner if owner is not None and chance.random() < 0.6 else chance.choice(others)
    deeds: list[Callable[[], None]] = [
        victim.crash,
        victim.kill,
        lambda: world.network.cut([victim.number], list(world.nodes)),
        lambda: world.network.cut_one_way([victim.number], list(world.nodes)),
        lambda: world.network.cut_one_way(list(world.nodes), [victim.number]),
        faults.cut.clear,
        faults.cut.clear,
    ]
    deed = chance.choice(deeds)
    if victim.is_up or deed not in deeds[:2]:
        deed()
    if chance.random() < 0.6:
        for node in world.nodes.values():
            if not node.is_up:
                node.start()


def work_through_trouble(world: ClusterWorld) -> History:
    """Write, receive and settle while nodes fail; in the end nothing is lost or comes twice."""
    history, writer = History(world), Writer(world)
    consumers = consumers_of(world, history)
    for _ in range(8):
        for _ in range(world.random.randint(2, 6)):
            writer.step()
            for consumer in consumers:
                consumer.step(is_kind=False)
            world.run_for(world.random.uniform(10, 400))
        strike(world)
    world.heal()
    if not writer.acked:  # Trouble may have come before the first of them, and stayed.
        writer.step()
        world.run_until(lambda: bool(writer.acked))
    drain(world, consumers, history)
    return history


def kill_messages(world: ClusterWorld) -> None:
    """Write messages, all of which the first group rejects."""
    writer = Writer(world)
    for _ in range(12):
        writer.step()
        world.run_for(50)
    for _ in range(100):
        node = owner_of(world, "one")
        assert node is not None
        receiver = node.broker.queues.receive("one", TOPIC, consumer="a", messages_max=100)
        got = world.wait(receiver.promise)
        if not got:
            break
        receipts = [one.delivery.receipt for one in got]
        world.wait(node.broker.queues.reject("one", receipts, reason="broken"))


def redrive_through_trouble(world: ClusterWorld) -> None:
    """Kill messages, bring them back while nodes fail; each is back once."""
    kill_messages(world)
    dead = len(records_of(world, GRAVE))
    assert dead > 5
    world.run_for(500)
    place = world.up()[0].broker.queues.journal.number_of(LEDGER_GROUP)
    runner = world.leader_of(DELIVERY_TOPIC, place)
    assert runner is not None
    before = len(records_of(world, TOPIC))
    job = world.wait(runner.broker.redrives.start(TOPIC, RedriveOrder(rate_per_s=20)))
    for _ in range(3):
        world.run_for(world.random.uniform(0, 500))
        strike(world)
        world.run_for(world.random.uniform(500, 2_000))
    world.heal()

    def is_done() -> bool:
        node = world.leader_of(DELIVERY_TOPIC, place)
        try:
            return node is not None and node.broker.redrives.get(TOPIC, job.id).is_ended
        except GoQueueError:
            return False

    world.run_until(is_done, ms_max=60_000)
    world.run_for(1_000)
    node = world.leader_of(DELIVERY_TOPIC, place)
    assert node is not None
    ended = node.broker.redrives.get(TOPIC, job.id)
    assert (ended.state, ended.moved, ended.failed) == ("done", dead, 0), ended
    assert len(records_of(world, TOPIC)) == before + dead
    assert world.wait(promised(node.broker.dead_letters.count(TOPIC))) == 0
