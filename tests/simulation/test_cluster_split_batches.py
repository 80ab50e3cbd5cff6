"""Batches with delayed records while the node that keeps them is away: all or nothing, in order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from goqueue.broker.publishing import split_batches as schedule_split
from goqueue.broker.schedules.owners import Store
from goqueue.broker.transactions.publishing import Addressed
from goqueue.delivery.schedules import ProducerBatch, ScheduledMessage
from goqueue.model.batch import Record, decode_batch, encode_batch
from goqueue.model.errors import (
    FencedLeaderEpoch,
    FencedProducer,
    GoQueueError,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    StorageFull,
    TransactionAbortable,
)
from goqueue.model.names import ProducerIdentity
from goqueue.partition import Appended, Partition
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

TOPIC = "orders"
SCHEDULED = "__scheduled"
SHORT_MS, LONG_MS = 300, 600_000
PENDING = "pending"
STORED = None

Outcome = GoQueueError | str | None


class Scene:
    """A topic's partition, the node that leads it and the node that keeps its delayed records.

    The third node is the controller, so that both keep their roles when they are cut off from each
    other.
    """

    def __init__(self, seed: int = 1, **settings: str) -> None:
        while True:
            self.world = world = ClusterWorld(
                seed, schedules__checkpoint_ms="400", storage__segment_bytes="8KiB", **settings
            )
            world.heal()
            world.create(TOPIC, partitions=2, min_insync_replicas="2")
            world.run_until(world.is_whole)
            world.run_for(1_000)
            for self.number in range(2):
                controller = self.leader.broker.controller_id
                nodes = {self.leader.number, self.owner.number, controller}
                if len(nodes) == 3:
                    return
            seed += 1

    @property
    def leader(self) -> ClusterNode:
        return self._led(TOPIC, self.number)

    @property
    def kept_in(self) -> int:
        broker = self.world.up()[0].broker
        return broker.schedules.participant(broker.topics.get(TOPIC), self.number).partition

    @property
    def owner(self) -> ClusterNode:
        return self._led(SCHEDULED, self.kept_in)

    def _led(self, topic: str, number: int) -> ClusterNode:
        self.world.run_until(lambda: self.world.leader_of(topic, number) is not None)
        node = self.world.leader_of(topic, number)
        assert node is not None
        return node

    def partition(self, node: ClusterNode) -> Partition:
        partition = node.partition(TOPIC, self.number)
        assert partition is not None
        return partition

    def cut(self) -> None:
        """Let the leader and the owner not reach each other."""
        self.world.network.cut([self.leader.number], [self.owner.number])

    def values(self) -> list[str]:
        partition = self.partition(self.leader)
        return [
            (record.value or b"").decode()
            for header, batch in partition.log.batches(0, until_offset=partition.high_watermark)
            for record in ([] if header.is_control else decode_batch(batch))
        ]

    def until_stored(self, sent: Callable[[], list[Outcome]]) -> None:
        """Send batches again until all of them are stored."""
        for _ in range(100):
            outcomes = sent()
            self.world.run_until(lambda: PENDING not in outcomes)  # noqa: B023
            if all(one is STORED for one in outcomes):
                return
            self.world.run_for(200)
        raise AssertionError(f"not stored: {outcomes}")

    def send(
        self,
        *batches: list[str],
        sequence: int = 0,
        epoch: int = 0,
        node: ClusterNode | None = None,
        **how: Any,
    ) -> list[Outcome]:
        """Send batches one right after the other; their outcomes, as they become known.

        A value that begins with `d` is delayed by a little, one with `D` by a lot.
        """
        node = node or self.leader
        outcomes: list[Outcome] = [PENDING] * len(batches)
        for index, values in enumerate(batches):
            records = [Record(b"k", value.encode(), _headers(value)) for value in values]
            encoded = encode_batch(
                records,
                producer_id=how.get("producer_id", 7),
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional="transactional_id" in how,
            )
            sequence += len(values)
            _send(node, self.partition(node), encoded, outcomes, index, how)
        return outcomes


def _send(
    node: ClusterNode,
    partition: Partition,
    encoded: bytearray,
    outcomes: list[Outcome],
    index: int,
    how: dict[str, Any],
) -> None:
    def done(error: GoQueueError | None) -> None:
        assert outcomes[index] == PENDING
        outcomes[index] = error

    topic = node.broker.topics.get(TOPIC)
    how = {name: value for name, value in how.items() if name != "producer_id"}
    try:
        appended = node.broker.producing.produce(topic, partition, memoryview(encoded), **how)
    except GoQueueError as error:
        done(error)
        return
    if "transactional_id" not in how:
        encoded[:] = bytes(len(encoded))  # As the socket's buffer is used for the next request.
    if isinstance(appended, Appended):
        partition.when_committed(appended.last_offset, done)
    else:
        appended.when_committed(done)


def _headers(value: str) -> tuple[tuple[str, bytes | None], ...]:
    delays_ms = {"d": SHORT_MS, "D": LONG_MS}
    delay_ms = delays_ms.get(value[0])
    return () if delay_ms is None else (("goqueue-delay-ms", b"%d" % delay_ms),)


BATCHES = (["d0", "p1"], ["p2"], ["d3", "d4"], ["p5"], ["d6"])
PLAIN = ["p1", "p2", "p5"]
ALL = ["d0", "d3", "d4", "d6", "p1", "p2", "p5"]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "first batches"])
def test_nothing_is_acknowledged_before_what_precedes_it_is_stored(is_known: bool) -> None:
    scene = Scene()
    sequence = 0
    if is_known:
        scene.until_stored(lambda: scene.send(["p"]))
        sequence = 1
    scene.cut()
    outcomes = scene.send(*BATCHES, sequence=sequence)
    assert outcomes == [PENDING] * 5
    scene.world.run_for(20_000)
    assert isinstance(outcomes[0], GoQueueError)
    assert outcomes[0].retryable
    assert all(isinstance(one, NotEnoughReplicas) for one in outcomes[1:])
    assert scene.values() == ["p"] * is_known
    # What arrives only now was sent before the first answer came.
    late = scene.send(["p7"], ["d8"], sequence=sequence + 7)
    assert all(isinstance(one, NotEnoughReplicas) for one in late)
    scene.world.network.heal()
    scene.until_stored(lambda: scene.send(*BATCHES, sequence=sequence))
    scene.world.run_for(5_000)
    values = scene.values()[is_known:]
    assert sorted(values) == ALL
    assert [one for one in values if one in PLAIN] == PLAIN


def test_a_healthy_pipeline_is_stored_in_order_and_refuses_nothing() -> None:
    scene = Scene()
    outcomes = scene.send(*BATCHES)
    scene.world.run_until(lambda: PENDING not in outcomes)
    assert outcomes == [STORED] * 5
    scene.world.run_for(5_000)
    assert sorted(scene.values()) == ALL
    assert [one for one in scene.values() if one in PLAIN] == PLAIN


def test_a_retry_of_what_is_pending_waits_with_it() -> None:
    scene = Scene()
    scene.cut()
    first = scene.send(*BATCHES)
    scene.world.run_for(1_000)
    again = scene.send(*BATCHES)
    scene.world.run_for(1_000)
    assert first == again == [PENDING] * 5
    scene.world.network.heal()
    scene.world.run_until(lambda: PENDING not in first + again)
    assert first == again == [STORED] * 5
    scene.world.run_for(5_000)
    assert sorted(scene.values()) == ALL


def test_who_ceases_to_lead_refuses_what_waits_at_once() -> None:
    scene = Scene()
    leader, owner = scene.leader, scene.owner
    (third,) = [one for one in scene.world.nodes if one not in (leader.number, owner.number)]
    scene.cut()
    outcomes = scene.send(*BATCHES)
    # The controller takes a leader for silent that it cannot hear.
    scene.world.network.cut_one_way([leader.number], [third])
    scene.world.run_until(lambda: scene.leader is not leader)
    scene.world.run_until(lambda: PENDING not in outcomes, ms_max=6_000)
    assert all(isinstance(one, NotLeader) for one in outcomes), outcomes
    scene.until_stored(lambda: scene.send(*BATCHES))
    scene.world.heal()
    scene.world.run_for(5_000)
    assert sorted(scene.values()) == ALL


def test_what_is_stored_already_is_not_stored_again_by_the_next_leader() -> None:
    scene = Scene()
    leader, owner = scene.leader, scene.owner
    # The owner's answers are lost: it has the delayed records, and the topic has no sequence.
    scene.world.network.cut_one_way([owner.number], [leader.number])
    outcomes = scene.send(["d0", "p1"], ["d2"])
    kept = owner.partition(SCHEDULED, scene.kept_in)
    assert kept is not None
    scene.world.run_until(lambda: kept.high_watermark >= 3)
    leader.crash()
    assert outcomes == [PENDING] * 2
    scene.world.network.heal()
    scene.world.run_until(lambda: scene.leader is not leader)
    scene.until_stored(lambda: scene.send(["d0", "p1"], ["d2"]))
    scene.world.heal()
    scene.world.run_for(5_000)
    assert sorted(scene.values()) == ["d0", "d2", "p1"]


def test_a_paused_leader_stores_nothing_when_it_is_resumed() -> None:
    scene = Scene()
    old = scene.leader
    many = [[f"d{number}"] for number in range(12)]
    scene.until_stored(lambda: scene.send(many[0]))
    old.pause()
    # This is in its socket's buffer when it is stopped, and is processed when it is resumed.
    late: list[list[Outcome]] = []
    old.clock.deliver(lambda: late.append(scene.send(many[1], sequence=1, node=old)))
    scene.world.run_until(lambda: scene.leader is not old)
    for number in range(1, 12):
        scene.until_stored(lambda: scene.send(many[number], sequence=number))  # noqa: B023
    old.resume()
    scene.world.run_for(20_000)
    assert len(late) == 1
    assert isinstance(late[0][0], GoQueueError)
    scene.world.heal()
    scene.world.run_for(5_000)
    assert sorted(scene.values()) == sorted(f"d{number}" for number in range(12))


def test_the_owner_turns_a_former_leader_away_whatever_owner_it_is() -> None:
    """By what it has seen, though its metadata may be behind, and after a fail-over as well."""
    scene = Scene()
    scene.until_stored(lambda: scene.send(["D0"]))
    first_owner = scene.owner
    epoch = scene.partition(scene.leader).leader_epoch

    def store(leader_epoch: int, sequence: int) -> Outcome:
        owner = scene.owner
        messages = [_message(scene, "D", sequence)]
        call = Store(0, scene.kept_in, messages, None, True, leader_epoch)
        try:
            scene.world.wait(owner.broker.schedules.store_here(call))
        except GoQueueError as error:
            return error
        return STORED

    assert store(epoch + 5, 1) is STORED  # A leader of whom its metadata does not know yet.
    assert isinstance(store(epoch, 2), FencedLeaderEpoch)
    first_owner.kill()
    scene.world.run_until(lambda: scene.owner is not first_owner)
    scene.world.run_for(2_000)
    assert isinstance(store(epoch + 4, 3), FencedLeaderEpoch)
    assert store(epoch + 5, 3) is STORED


def _message(scene: Scene, value: str, sequence: int) -> ScheduledMessage:
    topic = scene.leader.broker.topics.get(TOPIC)
    due_ms = scene.leader.clock.wall_ms() + LONG_MS
    origin = ProducerBatch(7, 0, sequence, sequence)
    return ScheduledMessage(
        due_ms, topic.id, TOPIC, scene.number, b"k", value.encode(), origin=origin
    )


def test_too_much_that_waits_is_refused_and_the_rest_is_not_taken_out_of_turn() -> None:
    scene = Scene(schedules__waiting_bytes_max="1KiB")
    scene.cut()
    six = [[f"d{number}"] for number in range(6)]
    outcomes = scene.send(*six)
    assert outcomes[:5] == [PENDING] * 5
    assert isinstance(outcomes[5], NotEnoughReplicas)
    # Another producer's first batch finds no room, nor may its second be taken for the first.
    large = "p" + 1_000 * "x"
    other = scene.send(["D0", large], ["p1"], producer_id=8)
    assert isinstance(other[0], NotEnoughReplicas)
    assert isinstance(other[1], NotEnoughReplicas)
    scene.world.network.heal()
    scene.world.run_until(lambda: PENDING not in outcomes)
    assert outcomes[:5] == [STORED] * 5
    scene.until_stored(lambda: scene.send(six[5], sequence=5))
    scene.until_stored(lambda: scene.send(["D0", large], ["p1"], producer_id=8))
    scene.world.run_for(5_000)
    found = scene.values()
    assert sorted(one for one in found if one[0] == "d") == [f"d{number}" for number in range(6)]
    assert [one[:2] for one in found if one[0] == "p"] == ["px", "p1"]


def test_a_new_epoch_of_a_producer_follows_what_waits_of_the_old_one() -> None:
    scene = Scene()
    scene.until_stored(lambda: scene.send(["p0"]))
    scene.cut()
    old = scene.send(["d1"], ["p2"], sequence=1)
    new = scene.send(["d0b"], ["p1b"], epoch=1)
    assert old == new == [PENDING] * 2
    assert isinstance(scene.send(["p3"], sequence=3)[0], FencedProducer)
    scene.world.network.heal()
    scene.world.run_until(lambda: PENDING not in old + new)
    assert old == new == [STORED] * 2
    scene.world.run_for(5_000)
    assert sorted(scene.values()) == ["d0b", "d1", "p0", "p1b", "p2"]


def test_a_producer_without_an_id_is_acknowledged_when_all_is_stored() -> None:
    scene = Scene()
    scene.cut()
    outcomes = scene.send(["d0", "p1"], producer_id=-1, epoch=-1, sequence=-1)
    scene.world.run_for(30_000)
    assert isinstance(outcomes[0], GoQueueError)
    assert outcomes[0].retryable
    scene.world.network.heal()
    scene.until_stored(lambda: scene.send(["d2", "p3"], producer_id=-1, epoch=-1, sequence=-1))
    scene.world.run_for(5_000)
    assert {"d2", "p3"} <= set(scene.values())


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_has_all_of_its_delayed_records_or_none(is_commit: bool) -> None:
    scene = Scene()
    world = scene.world
    name = _name_coordinated_elsewhere(scene)
    transactions = world.nodes[scene.leader.broker.transactions.owner_of(name)].broker.transactions
    identity = world.wait(transactions.initialise(name, timeout_ms=60_000))
    how = {
        "producer_id": identity.producer_id,
        "epoch": identity.epoch,
        "transactional_id": name,
        "joins_transaction": True,
    }
    scene.until_stored(lambda: scene.send(["p0"], **how))
    scene.until_stored(lambda: scene.send(["d1"], sequence=1, **how))
    # Now both take part, so that the leader need not ask the coordinator again.
    scene.cut()
    outcomes = scene.send(["d2", "p3"], ["p4"], sequence=2, **how)
    world.run_for(20_000)
    assert isinstance(outcomes[0], GoQueueError)
    assert outcomes[0].retryable
    assert isinstance(outcomes[1], GoQueueError)
    world.network.heal()
    scene.until_stored(lambda: scene.send(["d2", "p3"], ["p4"], sequence=2, **how))
    world.wait(transactions.end(name, ProducerIdentity(*identity), is_commit=is_commit))
    world.run_for(5_000)
    plain, delayed = ["p0", "p3", "p4"], ["d1", "d2"]
    assert sorted(scene.values()) == sorted(plain + (delayed if is_commit else []))


def _name_coordinated_elsewhere(scene: Scene) -> str:
    """A transactional id whose coordinator is not the node that is cut off from the leader."""
    transactions = scene.leader.broker.transactions
    names = (f"till-{number}" for number in range(100))
    return next(name for name in names if transactions.owner_of(name) != scene.owner.number)


def _with_another_coordinator() -> tuple[Scene, ClusterNode, str]:
    """A transaction of a node that neither keeps the delayed messages nor is the controller.

    Without the controller the owner of the messages would be replaced, and they would be stored.
    """
    for seed in count(1):
        scene = Scene(seed, schedules__partitions="1", transactions__state_partitions="3")
        for node in scene.world.up():
            for name in (f"till-{number}" for number in range(20)):
                is_apart = node not in (scene.owner, scene.world.nodes[node.broker.controller_id])
                if is_apart and node.broker.transactions.is_here(name):
                    return scene, node, name
    raise AssertionError("there is always another seed")


def test_a_transaction_whose_delayed_message_was_not_stored_cannot_be_committed() -> None:
    """Whoever publishes messages and not batches is answered when all of them are stored."""
    scene, node, name = _with_another_coordinator()
    world = scene.world
    transacting = node.broker.transacting
    transaction = world.wait(transacting.begin(name, timeout_ms=60_000))
    delayed = Record(None, b"d0", _headers("d0"))
    world.network.cut([node.number], [scene.owner.number])
    failed = transacting.publish(transaction, [Addressed(TOPIC, delayed)])
    with pytest.raises(GoQueueError):
        world.wait(failed)
    world.network.heal()
    with pytest.raises(TransactionAbortable):
        transacting.commit(transaction)
    world.wait(transacting.abort(transaction))
    again = world.wait(transacting.begin(name, timeout_ms=60_000))
    delayed = Record(None, b"d1", _headers("d1"))
    world.wait(transacting.publish(again, [Addressed(TOPIC, delayed)]))
    world.wait(transacting.commit(again))
    world.run_for(10_000)
    values: list[str] = []
    for scene.number in range(2):
        values += scene.values()
    assert values == ["d1"]


def test_a_first_batch_that_never_comes_again_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedule_split, "REFUSED_MS", 5_000)
    scene = Scene()
    scene.cut()
    outcomes = scene.send(["d0"])
    scene.world.run_until(lambda: PENDING not in outcomes)
    leader = scene.leader
    assert isinstance(scene.send(["p1"], sequence=1)[0], NotEnoughReplicas)
    scene.world.network.heal()
    scene.world.run_for(6_000)
    assert scene.leader is leader
    assert leader.broker.producing._pending.is_idle
    scene.until_stored(lambda: scene.send(["p1"], sequence=1))


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "first batches"])
@pytest.mark.parametrize("first", ["p0", "d0"], ids=["plain", "delayed"])
def test_what_follows_a_batch_that_found_no_room_is_sent_again_with_it(
    first: str, is_known: bool
) -> None:
    """To call it out of order would make its producer take a new epoch, and store things twice."""
    scene = Scene()
    sequence = 0
    if is_known:
        scene.until_stored(lambda: scene.send(["p"]))
        sequence = 1
    upkeep = scene.leader.broker.upkeep
    upkeep.is_full = True
    refused = scene.send([first], ["p1"], sequence=sequence)
    assert all(isinstance(one, StorageFull) for one in refused)
    upkeep.is_full = False
    # These were on their way when the first two were refused.
    late = scene.send(["p2"], ["d3"], sequence=sequence + 2)
    assert all(isinstance(one, NotEnoughReplicas) for one in late)
    batches = ([first], ["p1"], ["p2"], ["d3"])
    scene.until_stored(lambda: scene.send(*batches, sequence=sequence))
    assert scene.leader.broker.producing._pending.is_idle
    scene.world.run_for(5_000)
    assert sorted(scene.values()) == sorted(["p"] * is_known + [first, "p1", "p2", "d3"])


def test_what_follows_a_batch_that_came_before_its_leader_knew_is_sent_again_with_it() -> None:
    scene = Scene()
    scene.until_stored(lambda: scene.send(["p0"]))
    leader = scene.leader
    partition = scene.partition(leader)
    other = next(one for one in scene.world.up() if one is not leader)
    assert isinstance(scene.send(["p1"], sequence=1, node=other)[0], NotLeader)
    scene.world.run_until(lambda: scene.partition(other).log.end_offset == 1)
    leader.kill()
    scene.world.run_until(lambda: scene.leader is not leader)
    if scene.leader is other:
        assert isinstance(scene.send(["p2"], sequence=2)[0], NotEnoughReplicas)
    assert partition.name == scene.partition(scene.leader).name
    scene.until_stored(lambda: scene.send(["p1"], ["p2"], sequence=1))
    assert scene.values() == ["p0", "p1", "p2"]


def test_a_producer_that_skips_a_batch_for_good_is_out_of_order() -> None:
    """Its own mistake, or a batch that it gave up: no retry can repair that."""
    scene = Scene()
    scene.until_stored(lambda: scene.send(["p0"]))
    assert isinstance(scene.send(["p5"], sequence=5)[0], OutOfOrderSequence)
    scene.cut()
    waiting = scene.send(["d1"], sequence=1)
    assert isinstance(scene.send(["p5"], sequence=5)[0], NotEnoughReplicas)
    assert isinstance(scene.send(["p0", "p1"], sequence=0)[0], OutOfOrderSequence)
    scene.world.network.heal()
    scene.world.run_until(lambda: PENDING not in waiting)
    assert waiting == [STORED]


def test_a_transaction_that_has_ended_takes_what_was_refused_with_it() -> None:
    """Nobody sends its batches again, so the next ones must not wait for them."""
    scene = Scene()
    world = scene.world
    name = _name_coordinated_elsewhere(scene)
    transactions = world.nodes[scene.leader.broker.transactions.owner_of(name)].broker.transactions
    identity = world.wait(transactions.initialise(name, timeout_ms=60_000))
    how = {
        "producer_id": identity.producer_id,
        "epoch": identity.epoch,
        "transactional_id": name,
        "joins_transaction": True,
    }
    scene.until_stored(lambda: scene.send(["p0"], **how))
    upkeep = scene.leader.broker.upkeep
    upkeep.is_full = True
    refused = scene.send(["p1"], sequence=1, **how)
    world.run_until(lambda: PENDING not in refused)
    assert isinstance(refused[0], StorageFull)
    upkeep.is_full = False
    late = scene.send(["p2"], sequence=2, **how)
    world.run_until(lambda: PENDING not in late)
    assert isinstance(late[0], NotEnoughReplicas)
    world.wait(transactions.end(name, ProducerIdentity(*identity), is_commit=False))
    world.run_for(2_000)
    after = scene.send(["p2"], sequence=2, **how)
    world.run_until(lambda: PENDING not in after)
    assert isinstance(after[0], OutOfOrderSequence)
    scene.until_stored(lambda: scene.send(["p3"], sequence=1, **how))
    world.wait(transactions.end(name, ProducerIdentity(*identity), is_commit=True))
    assert scene.leader.broker.producing._pending.is_idle


def test_a_new_epoch_need_not_repeat_what_was_refused_in_the_old_one() -> None:
    scene = Scene()
    scene.until_stored(lambda: scene.send(["p0"]))
    upkeep = scene.leader.broker.upkeep
    upkeep.is_full = True
    assert isinstance(scene.send(["p1"], sequence=1)[0], StorageFull)
    assert isinstance(scene.send(["q0"], epoch=1)[0], StorageFull)
    upkeep.is_full = False
    assert isinstance(scene.send(["q1"], sequence=1, epoch=1)[0], NotEnoughReplicas)
    scene.until_stored(lambda: scene.send(["q0"], ["q1"], epoch=1))
    assert scene.leader.broker.producing._pending.is_idle
    assert scene.values() == ["p0", "q0", "q1"]
