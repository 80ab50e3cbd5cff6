"""Copies that are moved or catch up beside live traffic; deleting on all of them; voters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.broker.administration import Administration
from goqueue.broker.replication.clustering import Clustering
from goqueue.cluster.commands import ChangeVoter, UnregisterNode
from goqueue.cluster.facts import PartitionFact
from goqueue.cluster.replication.pacing import PIECE_BYTES, SAVED_MS
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GoQueueError,
    NoReassignment,
    NotLeader,
    QuorumAtRisk,
    RequestTimedOut,
    UnknownNode,
)
from goqueue.partition import Partition
from tests.simulation.cluster_trouble import Trouble
from tests.simulation.cluster_watch import Watch
from tests.simulation.cluster_work import IdempotentWriter
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

BATCH_BYTES = 4_000
TOPIC = "orders"


class Writer:
    """Writes batches of some size with acks=all."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.acked = 0
        self.refused: list[GoQueueError] = []
        self.out = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self.out += 1
            self.world.produce(TOPIC, ["x" * BATCH_BYTES], self._done)

    def write(self, count: int) -> None:
        """Send so many and wait until all of them are acknowledged."""
        self.send(count)
        self.world.run_until(lambda: self.out == 0, ms_max=5_000)
        assert not self.refused

    def _done(self, _: list[str], error: GoQueueError | None) -> None:
        self.out -= 1
        if error is None:
            self.acked += 1
        else:
            self.refused.append(error)


def cluster_of(node: ClusterNode) -> Clustering:
    assert node.broker.cluster is not None
    return node.broker.cluster


def administration_of(world: ClusterWorld, node: int = 1) -> Administration:
    return world.nodes[node].broker.administration


def create(world: ClusterWorld, *replicas: int, **settings: str) -> None:
    topics = world.nodes[1].broker.topics
    made = topics.create(TOPIC, partition_count=1, settings=settings, assignment=(replicas,))
    world.wait(made)
    world.run_until(lambda: world.leader_of(TOPIC) is not None)
    world.run_until(lambda: set(fact_of(world).in_sync) == set(replicas))


def fact_of(world: ClusterWorld) -> PartitionFact:
    broker = world.nodes[1].broker
    fact = cluster_of(world.nodes[1]).quorum.metadata.partitions.get(broker.topics.get(TOPIC).id, 0)
    assert fact is not None
    return fact


def copy_of(world: ClusterWorld, node: int) -> Partition:
    partition = world.nodes[node].partition(TOPIC)
    assert partition is not None
    return partition


def move(world: ClusterWorld, *replicas: int, throttle: int | None = None) -> None:
    topic = world.nodes[1].broker.topics.get(TOPIC)
    world.wait(
        administration_of(world).reassign(topic, 0, replicas, throttle_bytes_per_second=throttle)
    )


# Throttles


def test_a_move_keeps_to_its_throttle_while_writers_notice_nothing() -> None:
    # With so much patience, no follower repeats its question while this lasts.
    world = ClusterWorld(1, node_count=4, replication__lag_ms="60s")
    world.heal()
    create(world, 1, 2)
    writer = Writer(world)
    writer.write(100)
    rate = 40_000
    move(world, 1, 4, throttle=rate)
    began_ms, before = world.clock.now_ms(), copy_of(world, 4).log.size
    for _ in range(20):
        # What is live is acknowledged at once, and the old copies stay in sync.
        writer.write(1)
        world.run_for(100)
        copied = copy_of(world, 4).log.size - before
        passed_ms = world.clock.now_ms() - began_ms
        assert copied <= rate * (passed_ms + SAVED_MS) / 1000 + 2 * BATCH_BYTES
    assert copied >= rate * passed_ms / 1000 * 0.8
    assert set(fact_of(world).in_sync) == {1, 2}
    meter = administration_of(world, 4).copy_bytes_per_second
    topic = world.nodes[4].broker.topics.get(TOPIC)
    assert meter(topic, 0) == pytest.approx(rate, rel=0.4)
    # In a hurry after all.
    world.wait(administration_of(world).throttle_reassignment(topic, 0, 0))
    world.run_until(lambda: not fact_of(world).is_moving, ms_max=1_000)
    assert fact_of(world).replicas == (1, 4)
    assert copy_of(world, 4).end_offset == copy_of(world, 1).end_offset


def test_a_throttle_that_is_taken_back_holds_up_nobody_who_waits() -> None:
    world = ClusterWorld(15, node_count=4, replication__lag_ms="60s")
    world.heal()
    create(world, 1, 2)
    Writer(world).write(10)
    move(world, 1, 4, throttle=BATCH_BYTES // 100)
    world.run_until(lambda: copy_of(world, 4).end_offset == 1, ms_max=2_000)
    # The next batch would have to wait for more than a minute.
    world.run_for(1_000)
    assert copy_of(world, 4).end_offset == 1
    topic = world.nodes[1].broker.topics.get(TOPIC)
    world.wait(administration_of(world).throttle_reassignment(topic, 0, 0))
    world.run_until(lambda: not fact_of(world).is_moving, ms_max=1_000)


def test_a_throttle_ends_with_its_move() -> None:
    world = ClusterWorld(2, node_count=4)
    world.heal()
    create(world, 1, 2)
    writer = Writer(world)
    writer.write(30)
    move(world, 1, 4, throttle=10_000)
    assert fact_of(world).throttle_bytes_per_second == 10_000
    move(world, 1, 4)
    assert fact_of(world).throttle_bytes_per_second == 10_000, "nothing was said about it"
    move(world, 1, 3, throttle=None)
    assert fact_of(world).throttle_bytes_per_second == 10_000, "it is the same move, elsewhere"
    topic = world.nodes[1].broker.topics.get(TOPIC)
    world.wait(administration_of(world).cancel_reassignment(topic, 0))
    assert fact_of(world).throttle_bytes_per_second == 0
    with pytest.raises(NoReassignment):
        world.wait(administration_of(world).throttle_reassignment(topic, 0, 5))
    move(world, 1, 4, throttle=1_000_000)
    world.run_until(lambda: not fact_of(world).is_moving)
    assert fact_of(world).throttle_bytes_per_second == 0


def test_copies_in_sync_are_never_slowed_down_and_others_are() -> None:
    world = ClusterWorld(3, replication__catch_up_bytes_per_second="8000")
    world.heal()
    create(world, 1, 2, 3, min_insync_replicas="2")
    writer = Writer(world)
    began_ms = world.clock.now_ms()
    writer.write(200)
    assert world.clock.now_ms() - began_ms < 2_000, "800 kB with acks=all"
    leader = world.leader_of(TOPIC)
    assert leader is not None
    absent = next(node for node in world.nodes.values() if node is not leader)
    absent.kill()
    world.run_until(lambda: absent.number not in fact_of_any(world).in_sync)
    writer.write(10)
    absent.start()
    world.run_until(lambda: absent.partition(TOPIC) is not None)
    behind_ms = world.clock.now_ms()
    world.run_until(lambda: absent.number in fact_of_any(world).in_sync, ms_max=30_000)
    assert world.clock.now_ms() - behind_ms > 10 * BATCH_BYTES / 8_000 * 1000 - 2 * SAVED_MS - 1_000
    # Now that it is in sync, everybody waits for it, so it is as fast as the others.
    began_ms = world.clock.now_ms()
    writer.write(200)
    assert world.clock.now_ms() - began_ms < 2_000


def fact_of_any(world: ClusterWorld) -> PartitionFact:
    node = world.up()[0]
    topic = node.broker.topics.get(TOPIC)
    fact = cluster_of(node).quorum.metadata.partitions.get(topic.id, 0)
    assert fact is not None
    return fact


def test_a_copy_that_writers_need_is_not_slowed_down() -> None:
    world = ClusterWorld(4, replication__catch_up_bytes_per_second="1000")
    world.heal()
    create(world, 1, 2, 3, min_insync_replicas="2")
    writer = Writer(world)
    writer.write(50)
    leader = world.leader_of(TOPIC)
    assert leader is not None
    others = [node for node in world.nodes.values() if node is not leader]
    others[0].kill()
    world.run_until(lambda: others[0].number not in fact_of_any(world).in_sync)
    writer.write(50)
    others[0].start()
    world.run_for(1_000)
    assert others[0].number not in fact_of_any(world).in_sync, "it is far behind, and slow"
    others[1].kill()
    # Only the leader is in sync now, and it takes nothing: 200 kB at 1 kB/s would be minutes.
    world.run_until(lambda: others[0].number in fact_of_any(world).in_sync, ms_max=10_000)
    writer.write(1)


def test_a_copy_that_begins_to_count_waits_for_its_throttle_no_longer() -> None:
    rate = f"{BATCH_BYTES // 4}"
    world = ClusterWorld(
        14, node_count=4, replication__lag_ms="60s", replication__catch_up_bytes_per_second=rate
    )
    world.heal()
    create(world, 1, 2)
    writer = Writer(world)
    writer.write(3)
    move(world, 1, 2, 4)
    world.nodes[4].disk.sync_delay_ms = 200
    world.run_until(lambda: copy_of(world, 4).end_offset == 3, ms_max=60_000)
    # The new copy has everything and its disk does not yet. Before it has, more is written, which
    # the other copy takes a while to have; so that is not committed when the new copy gets in sync.
    world.nodes[2].disk.sync_delay_ms = 500
    began_ms = world.clock.now_ms()
    writer.write(1)
    assert set(fact_of(world).in_sync) == {1, 2, 4}
    assert world.clock.now_ms() - began_ms < 2_500, "what it got before is worth four seconds"


@pytest.mark.parametrize("side", ["feeding", "catching_up"])
def test_a_node_that_is_throttled_keeps_to_that_on_either_side(side: str) -> None:
    # A follower learns how much it gets only when it has got it, so it must be little.
    world = ClusterWorld(13, node_count=4, replication__fetch_bytes_max="8KiB")
    world.heal()
    create(world, 1, 2)
    writer = Writer(world)
    writer.write(50)
    rate = 20_000
    administration = administration_of(world)
    if side == "feeding":
        node, limit = 1, administration.throttle_node(1, feeding_bytes_per_second=rate)
    else:
        node, limit = 4, administration.throttle_node(4, catching_up_bytes_per_second=rate)
    world.wait(limit)
    world.run_for(500)  # until that node has heard of it, which nobody waits for
    move(world, 1, 4)
    began_ms = world.clock.now_ms()
    for _ in range(10):
        writer.write(1)
        world.run_for(300)
        passed_ms = world.clock.now_ms() - began_ms
        most = rate * (passed_ms + SAVED_MS) / 1000 + 4 * BATCH_BYTES
        assert copy_of(world, 4).log.size <= most
    assert fact_of(world).is_moving
    world.wait(
        administration.throttle_node(
            node, feeding_bytes_per_second=0, catching_up_bytes_per_second=0
        )
    )
    world.run_until(lambda: not fact_of(world).is_moving, ms_max=2_000)


def test_many_copies_catch_up_beside_live_traffic_and_none_starves() -> None:
    world = ClusterWorld(5)
    world.heal()
    for number in range(6):
        topics = world.nodes[1].broker.topics
        world.wait(topics.create(f"other-{number}", partition_count=1))
    create(world, 1, 2, 3, min_insync_replicas="2")
    writer = Writer(world)
    absent = world.nodes[3]
    absent.kill()
    world.run_until(lambda: 3 not in fact_of(world).in_sync)
    for number in range(6):
        for _ in range(4):
            world.produce(f"other-{number}", ["y" * PIECE_BYTES], lambda values, error: None)
    writer.write(20)
    absent.start()
    while not world.is_whole():
        writer.write(1)
        assert world.age_ms < 60_000
    for number in range(6):
        ends = {node.partition(f"other-{number}").end_offset for node in world.up()}  # type: ignore[union-attr]
        assert ends == {4}


class Mover:
    """An operator who moves a topic to and fro, at all paces, and changes his mind."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.is_working = True
        self._work()

    def _work(self) -> None:
        if not self.is_working:
            return
        chance = self.world.random
        self.world.clock.call_later(chance.uniform(100, 1_000), self._work)
        nodes = self.world.up()
        if not nodes:
            return
        broker = chance.choice(nodes).broker
        topic, administration = broker.topics.find(TOPIC), broker.administration
        if topic is None:
            return
        rate = chance.choice([0, 2_000, 20_000, 1_000_000])
        target = chance.sample(sorted(self.world.nodes), 3)
        deeds: list[Callable[[], Promise[None]]] = [
            lambda: administration.reassign(topic, 0, target, throttle_bytes_per_second=rate),
            lambda: administration.reassign(topic, 0, target),
            lambda: administration.throttle_reassignment(topic, 0, rate),
            lambda: administration.cancel_reassignment(topic, 0),
            lambda: administration.throttle_node(
                target[0], feeding_bytes_per_second=rate, catching_up_bytes_per_second=rate
            ),
        ]
        try:
            chance.choice(deeds)().then(self._done)
        except GoQueueError:
            pass  # It is refused at once.

    def _done(self, _: None, error: Exception | None) -> None:
        if error is not None and not isinstance(error, GoQueueError):
            raise error


@pytest.mark.seeds(6)
def test_moves_at_any_pace_lose_nothing_whatever_happens(seed: int) -> None:
    rate = "5000" if seed % 2 else "-1"
    world = ClusterWorld(seed, node_count=5, replication__catch_up_bytes_per_second=rate)
    world.heal()
    world.create(TOPIC, min_insync_replicas="2")
    writer = IdempotentWriter(world, TOPIC, 0, producer_id=100, in_flight=3)
    trouble = Trouble(world, [(TOPIC, 0)])
    mover = Mover(world)
    for _ in range(12):
        for _ in range(world.random.randint(1, 10)):
            writer.write()
            world.run_for(world.random.uniform(5, 60))
        if world.random.random() < 0.6:
            trouble.strike()
        world.run_for(world.random.uniform(5, 1_000))
    mover.is_working = False
    trouble.end()
    world.run_until(lambda: writer.is_done, ms_max=20_000)
    world.run_until(world.is_whole, ms_max=60_000)
    world.watch.check_whole()
    own = [one for one in world.watch.ledger(TOPIC, 0).values() if one.startswith("100-")]
    assert own == sorted(writer.acked, key=lambda value: int(value.rpartition("-")[2]))


# What a node that starts reads again


def restart_all(world: ClusterWorld) -> None:
    for node in world.up():
        node.kill()
    world.heal()


def test_copies_that_went_and_came_back_outlive_a_restart() -> None:
    world = ClusterWorld(16, node_count=4)
    world.heal()
    create(world, 1, 2)
    writer = Writer(world)
    writer.write(10)
    for replicas in ((3, 4), (1, 2)):
        move(world, *replicas)
        world.run_until(lambda: not fact_of(world).is_moving)
        world.run_until(lambda: world.leader_of(TOPIC) is not None)
        writer.write(1)
    # Their log says that once they kept nothing of it; that is over.
    restart_all(world)
    assert fact_of(world).replicas == (1, 2)
    assert {copy_of(world, node).end_offset for node in (1, 2)} == {12}


def test_a_topic_that_was_made_anew_outlives_a_restart() -> None:
    world = ClusterWorld(17)
    world.heal()
    create(world, 1, 2, 3)
    Writer(world).write(3)
    world.wait(world.nodes[1].broker.topics.delete(TOPIC))
    world.watch = Watch(world)  # which knows topics by their names alone
    create(world, 1, 2, 3)
    Writer(world).write(5)
    restart_all(world)
    assert {copy_of(world, node).end_offset for node in (1, 2, 3)} == {5}


def test_a_removed_copy_leaves_nothing_in_the_commit_journal_for_the_one_after_it() -> None:
    """It had other records than the leader where their bytes are now."""
    world = ClusterWorld(18, node_count=4)
    world.heal()
    create(world, 2, 3, 4, min_insync_replicas="2")
    old = world.nodes[2]
    assert world.leader_of(TOPIC) is old
    acked: list[GoQueueError | None] = []
    world.produce(TOPIC, ["first"], lambda values, error: acked.append(error))
    world.run_until(lambda: acked == [None])
    world.network.cut([2], [1, 3, 4])
    world.produce(TOPIC, ["never"], lambda values, error: None)
    world.run_until(lambda: world.leader_of(TOPIC) not in (None, old), ms_max=5_000)
    world.produce(TOPIC, ["acked"], lambda values, error: acked.append(error))
    world.run_until(lambda: acked == [None, None], ms_max=5_000)
    move(world, 1, 3, 4)
    world.run_until(lambda: fact_of(world).replicas == (1, 3, 4) and not fact_of(world).is_moving)
    world.network.heal()
    world.run_until(lambda: not old.broker.topics.keeps(copy_of(world, 2)))
    move(world, 2, 3, 4)
    world.run_until(world.is_whole)
    old.kill()
    world.heal()
    world.run_until(lambda: copy_of(world, 2).high_watermark == 2, ms_max=2_000)
    assert world.read(old, TOPIC) == ["first", "acked"]


# Deleting records


def test_records_are_deleted_when_every_copy_in_sync_has_deleted_them() -> None:
    world = ClusterWorld(6)
    world.heal()
    create(world, 1, 2, 3)
    Writer(world).write(10)
    leader = world.leader_of(TOPIC)
    assert leader is not None
    others = [node.number for node in world.nodes.values() if node is not leader]
    # One follower does not hear for a while, and has all records until then.
    world.network.faults.cut.add((leader.number, others[0]))
    done = leader.broker.administration.delete_records(TOPIC, 0, before_offset=7)
    assert copy_of(world, leader.number).start_offset == 7
    world.run_for(400)
    assert copy_of(world, others[1]).start_offset == 7
    assert copy_of(world, others[0]).start_offset == 0
    assert others[0] in fact_of(world).in_sync
    assert not done.is_done
    world.network.heal()
    world.run_until(lambda: done.is_done, ms_max=2_000)
    assert world.wait(done) == 7
    assert {copy_of(world, node).start_offset for node in world.nodes} == {7}


def test_an_idle_cluster_deletes_at_once() -> None:
    world = ClusterWorld(7)
    world.heal()
    create(world, 1, 2, 3)
    Writer(world).write(10)
    world.run_for(1_000)
    leader = world.leader_of(TOPIC)
    assert leader is not None
    began_ms = world.clock.now_ms()
    assert world.wait(leader.broker.administration.delete_records(TOPIC, 0, before_offset=-1)) == 10
    assert world.clock.now_ms() - began_ms < 100, "followers that wait for news are told"


def test_a_copy_that_is_lost_does_not_hold_up_a_deletion_for_ever() -> None:
    world = ClusterWorld(8)
    world.heal()
    create(world, 1, 2, 3)
    Writer(world).write(10)
    leader = world.leader_of(TOPIC)
    assert leader is not None
    lost = next(node for node in world.nodes.values() if node is not leader)
    lost.crash()
    with pytest.raises(RequestTimedOut):
        world.wait(
            leader.broker.administration.delete_records(TOPIC, 0, before_offset=7, timeout_ms=100)
        )
    # It is taken out of the in-sync set, and can bring nothing back.
    assert world.wait(leader.broker.administration.delete_records(TOPIC, 0, before_offset=7)) == 7


def test_whoever_waits_for_a_deletion_is_told_that_another_leads() -> None:
    world = ClusterWorld(9)
    world.heal()
    create(world, 1, 2, 3)
    Writer(world).write(10)
    leader = world.leader_of(TOPIC)
    assert leader is not None
    others = [node.number for node in world.nodes.values() if node is not leader]
    world.network.faults.cut.update((leader.number, node) for node in others)
    done = leader.broker.administration.delete_records(TOPIC, 0, before_offset=7)
    world.run_until(lambda: world.leader_of(TOPIC) is not leader, ms_max=20_000)
    world.network.heal()
    with pytest.raises(NotLeader):
        world.wait(done)


# Voters


def voters(world: ClusterWorld) -> tuple[int, ...]:
    return next(
        cluster_of(node).quorum.voters
        for node in world.up()
        if cluster_of(node).quorum.is_controller
    )


def test_a_voter_is_removed_or_added_only_if_those_that_run_can_decide() -> None:
    world = ClusterWorld(10, node_count=4)
    world.heal()
    assert voters(world) == (1, 2, 3)
    ask = cluster_of(world.nodes[1]).quorum.request
    with pytest.raises(UnknownNode):
        world.wait(ask(ChangeVoter(77)))
    nodes = cluster_of(world.nodes[1]).quorum.metadata.nodes
    world.nodes[4].kill()
    world.run_until(lambda: nodes[4].is_fenced)
    with pytest.raises(QuorumAtRisk, match="Node 4 is not running"):
        world.wait(ask(ChangeVoter(4)))
    world.nodes[3].kill()
    world.run_until(lambda: nodes[3].is_fenced)
    # With 1 and 3 for voters, nothing could be decided any more.
    with pytest.raises(QuorumAtRisk, match="Start or remove first: 3"):
        world.wait(ask(ChangeVoter(2, is_wanted=False)))
    with pytest.raises(QuorumAtRisk, match="Start or remove first: 3, 4"):
        world.wait(ask(ChangeVoter(4)))
    assert voters(world) == (1, 2, 3)


def test_a_lost_voter_is_replaced_by_a_node_with_another_id() -> None:
    world = ClusterWorld(11, node_count=4)
    world.heal()
    assert voters(world) == (1, 2, 3)
    world.nodes[3].crash()
    world.run_until(lambda: cluster_of(world.nodes[1]).quorum.metadata.nodes[3].is_fenced)
    quorum = cluster_of(world.nodes[1]).quorum
    world.wait(quorum.request(ChangeVoter(3, is_wanted=False)))
    # With two voters left, one that only followed is asked to vote.
    world.run_until(lambda: voters(world) == (1, 2, 4), ms_max=5_000)
    # Whoever is asked may hear of it a moment later than the first of them.
    world.run_for(200)
    views = {one.id: one for one in administration_of(world).quorum()}
    assert {one.id for one in views.values() if one.is_voter} == {1, 2, 4}
    assert not views[3].is_running
    # The quorum can do without another one now.
    world.nodes[2].crash()
    world.run_until(lambda: 2 in quorum.metadata.nodes and quorum.metadata.nodes[2].is_fenced)
    create_after = world.nodes[1].broker.topics.create("after", partition_count=1)
    world.wait(create_after)


def test_the_controller_can_be_asked_to_vote_no_more() -> None:
    world = ClusterWorld(12, node_count=4)
    world.heal()
    ask = cluster_of(world.nodes[4]).quorum.request
    world.wait(ask(ChangeVoter(4)))
    old = next(one.number for one in world.up() if cluster_of(one).quorum.is_controller)
    world.wait(ask(ChangeVoter(old, is_wanted=False)))
    world.run_until(world.is_whole)
    assert voters(world) == tuple(node for node in (1, 2, 3, 4) if node != old)
    with pytest.raises(GoQueueError):
        world.wait(ask(UnregisterNode(old)))
