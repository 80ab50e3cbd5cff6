"""An ordered named queue of a cluster: no duplicate is stored, whoever owns it and whoever did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.broker.named_queues.claims import producer_name
from goqueue.broker.named_queues.named_queues import NamedQueue, NamedQueueSpec, Posted, Posting
from goqueue.broker.replication.leaders import Marker
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, NotCoordinator, QueueExists
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import DELIVERY_TOPIC
from tests.simulation.cluster_queues import owner_of, records_of
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.named_queue_work import (
    KEYS,
    NAME,
    SPEC,
    Seen,
    Sender,
    Taker,
    Where,
    check_stored,
)

KEYS_TRIED = [b"a", b"b", b"c", b"d", b"e"]
OWNERS_TRIED = 20
QUIET_STEPS = 150  # of 100 ms: a call that got lost is given up after ten seconds


def _begin(seed: int, **settings: str) -> ClusterWorld:
    world = ClusterWorld(
        seed,
        delivery__snapshot_bytes="4KiB",
        delivery__lanes_save_ms="500ms",
        topics__partitions="2",
        **settings,
    )
    world.heal()
    maker = world.nodes[world.random.choice(world.up()).broker.groups.coordinator_of(NAME)]
    world.wait(maker.broker.named_queues.create(SPEC))
    world.run_until(lambda: owner_of(world, NAME) is not None)
    world.run_until(lambda: all(one.broker.named_queues.find(NAME) for one in world.up()))
    return world


class Owners:
    """Who owns the queue, or takes itself for its owner."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._epoch = 0

    def find(self) -> Where | None:
        """The owner; nobody, as long as only one takes itself for it that others followed.

        Such a one may deliver what is done elsewhere. Its answers to acks never come.
        """
        where = self.find_any()
        if where is None:
            return None
        self._epoch = max(self._epoch, where.tenure[2])
        return where if where.tenure[2] == self._epoch else None

    def find_any(self) -> Where | None:
        """Whoever seems to be the owner: senders may believe it, and must not be lied to."""
        node = owner_of(self._world, NAME)
        if node is None:
            return None
        place = node.broker.queues.groups.place_of(NAME)
        epoch = node.broker.topics.get(DELIVERY_TOPIC).partition(place).leader_epoch
        return Where(node.broker, (node.number, node.life, epoch), node.clock.now_ms())


def _strike(world: ClusterWorld) -> None:
    """Something happens to the cluster, mostly to the owner."""
    chance, faults = world.random, world.network.faults
    faults.loss = chance.choice([0.0, 0.0, 0.05, 0.2])
    faults.duplication = chance.choice([0.0, 0.1])
    faults.delay_ms = chance.choice([1.0, 5.0, 50.0])
    owner = owner_of(world, NAME)
    victim = chance.choice(list(world.nodes.values()))
    if owner is not None and chance.random() < 0.6:
        victim = owner
    deeds: list[Callable[[], None]] = [
        victim.crash,
        victim.kill,
        lambda: world.network.cut([victim.number], list(world.nodes)),
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


@pytest.mark.seeds(6)
def test_each_id_is_stored_once_and_each_key_stays_in_order_whoever_owns_it(seed: int) -> None:
    world = _begin(seed)
    seen = Seen(f"seed {seed}", has_late_acks=True)
    owners = Owners(world)
    senders = [Sender(world.random, owners.find_any, key) for key in range(KEYS)]
    takers = [Taker(world.random, owners.find, f"t{one}", seen) for one in range(2)]
    for _ in range(8):
        for _ in range(world.random.randint(2, 6)):
            for sender in senders:
                sender.step()
            for taker in takers:
                taker.step(is_kind=False)
            world.run_for(world.random.uniform(10, 400))
        _strike(world)
    world.heal()
    for _ in range(400):
        for sender in senders:
            sender.step()
        world.run_for(100)
        if all(one.acked >= 5 for one in senders):
            break
    else:
        pytest.fail(f"seed {seed}: senders have no answers though all is well")
    quiet = 0
    while quiet < QUIET_STEPS:
        before = seen.deliveries
        for taker in takers:
            taker.step(is_kind=True)
        world.run_for(100)
        quiet = quiet + 1 if seen.deliveries == before else 0
    records = [record for _, record in records_of(world, NAME)]
    check_stored(records, senders, f"seed {seed}")
    owner = owner_of(world, NAME)
    assert owner is not None
    left = owner.broker.queues.inspection.stats(NAME, NAME)
    assert (left.ready, left.in_flight, left.retrying, left.parked) == (0, 0, 0, 0), f"seed {seed}"


def _send(
    node: ClusterNode, name: str, value: bytes, key: bytes = b"k"
) -> list[Posted | GoQueueError]:
    """Send one message; what comes of it, when it does."""
    outcome: list[Posted | GoQueueError] = []
    posting = Posting(Record(key, value), f"{name} of {node.number}", deduplication_id=name)

    def sent(results: list[Posted | GoQueueError] | None, error: Exception | None) -> None:
        assert error is None or isinstance(error, GoQueueError)
        outcome.extend(results or ([error] if error is not None else []))

    queue: NamedQueue = node.broker.named_queues.get(NAME)
    node.broker.named_queues.send(queue, [posting]).then(sent)
    return outcome


def test_an_owner_that_knows_no_better_stores_nothing_after_another_has_taken_over() -> None:
    world = _begin(1)
    former = owner_of(world, NAME)
    assert former is not None
    first = _send(former, "one", b"first")
    world.run_until(lambda: bool(first))
    world.network.cut([former.number], list(world.nodes))
    # It tries to store this until somebody answers, and does not hear that it owns nothing now.
    stray = _send(former, "two", b"of the former owner")
    world.run_until(lambda: owner_of(world, NAME) not in (former, None), ms_max=20_000)
    owner = owner_of(world, NAME)
    assert owner is not None
    # The same id, in a partition where the former owner has nothing under way.
    other = next(key for key in KEYS_TRIED if partition_of_key(key, 2) != partition_of_key(b"k", 2))
    kept = _send(owner, "two", b"of the owner", other)
    world.run_until(lambda: bool(kept), ms_max=30_000)
    assert isinstance(kept[0], Posted)
    assert not stray
    world.network.heal()
    world.run_until(lambda: bool(stray), ms_max=60_000)
    assert isinstance(stray[0], GoQueueError)
    assert stray[0].retryable
    again = _send_to_owner(world, "one", b"again")
    assert again == Posted(f"one of {former.number}", first[0].sequence, is_duplicate=True)  # type: ignore[union-attr]
    values = [record.value for _, record in records_of(world, NAME)]
    assert sorted(values) == [b"first", b"of the owner"]


def _send_to_owner(world: ClusterWorld, name: str, value: bytes) -> Posted:
    """Send one message to whoever owns the queue, which may change again when all is well."""
    for _ in range(OWNERS_TRIED):
        owner = owner_of(world, NAME)
        outcome = [] if owner is None else _send(owner, name, value)
        world.run_for(1_000)
        if outcome and isinstance(outcome[0], Posted):
            return outcome[0]
    pytest.fail("nobody takes the message though all is well")


@pytest.mark.seeds(2)
def test_what_nobody_could_confirm_is_stored_once_when_it_is_sent_again(seed: int) -> None:
    world = _begin(seed)
    owner = owner_of(world, NAME)
    assert owner is not None
    before = _send(owner, "before", b"x")
    world.run_until(lambda: bool(before))
    # Whatever the leaders take now, nobody else has: they cannot say that it is safe.
    others = [node for node in world.up() if node is not owner]
    for node in others:
        world.network.cut([node.number], list(world.nodes))
    doubtful = _send(owner, "one", b"first")
    world.run_for(20_000)
    assert not any(isinstance(one, Posted) for one in doubtful)
    world.network.heal()
    world.heal()
    for _ in range(2):
        world.run_until(lambda: owner_of(world, NAME) is not None)
        owner = owner_of(world, NAME)
        assert owner is not None
        again = _send(owner, "one", b"again")
        world.run_until(lambda again=again: bool(again), ms_max=60_000)  # type: ignore[misc]
        assert isinstance(again[0], Posted)
    assert again[0].is_duplicate
    world.run_until(lambda: bool(doubtful), ms_max=60_000)
    assert isinstance(doubtful[0], Posted) or doubtful[0].retryable
    assert len(records_of(world, NAME)) == 2


def test_a_queue_that_is_deleted_leaves_nothing_behind() -> None:
    world = _begin(3)
    owner = owner_of(world, NAME)
    assert owner is not None
    sent = _send(owner, "one", b"x")
    world.run_until(lambda: bool(sent))
    facts = owner.broker.topics.facts
    queue = owner.broker.named_queues.get(NAME)
    assert facts.producer_named(producer_name(queue)) is not None
    world.wait(owner.broker.named_queues.delete(NAME))
    for node in world.up():
        world.run_until(lambda node=node: node.broker.named_queues.find(NAME) is None)  # type: ignore[misc]
        assert node.broker.topics.find(NAME) is None
        assert not node.broker.queues.groups.is_known(NAME)
        assert node.broker.topics.facts.producer_named(producer_name(queue)) is None


def test_nodes_that_change_a_queue_at_the_same_time_lose_nothing() -> None:
    world = _begin(4)
    changes = [
        node.broker.named_queues.change(
            NAME, attributes={f"a{node.number}": "x"}, tags={f"t{node.number}": "y"}
        )
        for node in world.up()
    ]
    for change in changes:
        world.wait(change)
    queue = world.wait(world.up()[0].broker.named_queues.find_surely(NAME))
    world.run_for(2_000)
    queue = world.up()[0].broker.named_queues.get(NAME)
    assert queue.attributes == {"a1": "x", "a2": "x", "a3": "x"}
    assert queue.tags == {"t1": "y", "t2": "y", "t3": "y"}


def test_nodes_that_make_a_queue_at_the_same_time_make_one() -> None:
    world = _begin(5)
    spec = NamedQueueSpec("mail", attributes={"a": "1"})
    made = [world.wait(one) for one in [n.broker.named_queues.create(spec) for n in world.up()]]
    assert len({one.id for one in made}) == 1
    other = world.up()[0].broker.named_queues.create(spec._replace(attributes={"a": "2"}))
    with pytest.raises(QueueExists):
        world.wait(other)


@pytest.mark.parametrize(("copies", "in_sync"), [("3", "2"), ("1", "1")])
def test_messages_are_as_safe_as_the_journal_that_ends_them(copies: str, in_sync: str) -> None:
    world = _begin(6, cluster__replication_factor=copies)
    world.run_until(lambda: world.up()[0].broker.topics.find(NAME) is not None)
    settings = world.up()[0].broker.topics.get(NAME).fact.settings
    assert settings.get("min_insync_replicas", "1") == in_sync


def test_a_claim_that_another_has_overtaken_is_refused_and_can_be_repeated() -> None:
    """Two nodes that both take themselves for the owner; neither stores what the other has."""
    world = _begin(6)
    owner = owner_of(world, NAME)
    assert owner is not None
    first = _send(owner, "one", b"first")
    world.run_until(lambda: bool(first))
    facts = world.up()[0].broker.topics.facts
    queue = owner.broker.named_queues.get(NAME)
    later = world.wait(facts.take_over_producer(producer_name(queue)))
    topic = owner.broker.topics.get(NAME)
    for number in range(len(topic.partitions)):
        marker = Marker(
            topic.id,
            number,
            later.producer_id,
            later.epoch,
            is_commit=False,
            coordinator_epoch=later.epoch,
            turn=0,
            leader_epoch=owner.broker.leaders.epoch_of(topic, number),
        )
        told = owner.broker.leaders.end_transaction(topic, marker, timeout_ms=5_000)
        world.wait(told)
    refused = _send(owner, "two", b"of an epoch that is over")
    world.run_until(lambda: bool(refused))
    assert isinstance(refused[0], NotCoordinator)
    again = _send(owner, "two", b"second")
    world.run_until(lambda: bool(again))
    assert isinstance(again[0], Posted)
    values = sorted(record.value or b"" for _, record in records_of(world, NAME))
    assert values == [b"first", b"second"]


def test_who_does_not_own_a_queue_says_so() -> None:
    world = _begin(2)
    owner = owner_of(world, NAME)
    others = [node for node in world.up() if node is not owner]
    for node in others:
        refused = _send(node, "one", b"x")
        world.run_until(lambda refused=refused: bool(refused))  # type: ignore[misc]
        assert isinstance(refused[0], NotCoordinator)
