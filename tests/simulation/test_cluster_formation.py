"""How clusters begin, grow and change their nodes, with nothing lost on the way."""

from __future__ import annotations

from contextlib import suppress

import pytest

from goqueue.broker import Broker
from goqueue.broker.replication.clustering import Clustering
from goqueue.cluster.commands import (
    ChangeVoter,
    DrainNode,
    Reassign,
    RegisterNode,
    UnregisterNode,
)
from goqueue.config import load
from goqueue.model.batch import Record, encode_batch
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    InvalidSettings,
    NodeConflict,
    NodeInUse,
)
from goqueue.model.support import SUPPORT
from goqueue.partition import Appended
from tests.simulation.cluster_world import NODE_SETTINGS, ClusterNode, ClusterWorld
from tests.simulation.disk import PowerLost, SimulatedDisk


class Writer:
    """Sends numbered values and remembers which were acknowledged."""

    def __init__(self, world: ClusterWorld, topic: str) -> None:
        self.world = world
        self.topic = topic
        self.acked: set[str] = set()
        self.out = 0
        self._sent = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self._sent += 1
            self.out += 1
            self.world.produce(self.topic, [f"value-{self._sent}"], self._done)

    def settle(self) -> None:
        self.world.run_until(lambda: self.out == 0)

    def _done(self, values: list[str], error: GoQueueError | None) -> None:
        self.out -= 1
        if error is None:
            self.acked.update(values)


def cluster_of(node: ClusterNode) -> Clustering:
    assert node.broker.cluster is not None
    return node.broker.cluster


def controller_of(world: ClusterWorld) -> ClusterNode:
    return next(node for node in world.up() if cluster_of(node).quorum.is_controller)


def voters_of(world: ClusterWorld) -> tuple[int, ...]:
    return cluster_of(controller_of(world)).quorum.voters


def add(world: ClusterWorld, number: int, disk: SimulatedDisk | None = None) -> ClusterNode:
    """A further node, with a disk that somebody else has used before or with a new one."""
    return ClusterNode(world, number, disk)


def replace_disk(node: ClusterNode) -> None:
    """The node dies, and what it kept is gone."""
    if node.is_up:
        node.crash()
    node.disk = SimulatedDisk(node.world.random)


def has_controller(world: ClusterWorld) -> bool:
    return any(cluster_of(node).quorum.is_controller for node in world.up())


def is_complete(world: ClusterWorld, voter_count: int = 3) -> bool:
    return world.is_whole() and len(voters_of(world)) == voter_count


@pytest.mark.seeds(10)
def test_nodes_that_start_in_any_order_form_one_cluster(seed: int) -> None:
    world = ClusterWorld(seed, node_count=3)
    chance = world.random
    world.network.faults.loss = 0.2
    world.network.faults.delay_ms = 50.0
    for _ in range(6):
        world.run_for(chance.uniform(0, 600))
        victim = world.nodes[chance.randint(1, 3)]
        if victim.is_up:
            chance.choice([victim.crash, victim.kill])()
        else:
            victim.start()
    world.heal()
    assert len({cluster_of(node).cluster_id for node in world.up()}) == 1
    assert voters_of(world) == (1, 2, 3)


@pytest.mark.seeds(6)
def test_internal_topics_have_their_copies_from_the_beginning(seed: int) -> None:
    """Else a node that is lost soon after would be one too many."""
    world = ClusterWorld(seed)
    world.run_until(lambda: has_controller(world))
    # One of the voters registers a little later than the others.
    late = next(number for number in world.nodes if number != controller_of(world).number)
    world.network.faults.cut.add((late, controller_of(world).number))
    world.clock.call_later(700, world.network.faults.cut.clear)
    metadata = cluster_of(controller_of(world)).quorum.metadata
    world.run_until(lambda: metadata.topic("__consumer_offsets") is not None)
    topic = metadata.topic("__consumer_offsets")
    assert topic is not None
    assert {len(fact.replicas) for fact in metadata.partitions.of_topic(topic.id)} == {3}


def test_internal_topics_do_not_wait_for_a_voter_that_does_not_come() -> None:
    world = ClusterWorld(2)
    world.run_until(lambda: all(cluster_of(node).formation.formed for node in world.up()))
    world.nodes[3].kill()
    world.run_until(
        lambda: world.nodes[1].broker.topics.find("__consumer_offsets") is not None, ms_max=20_000
    )


def test_nobody_founds_a_cluster_without_the_others() -> None:
    world = ClusterWorld(1)
    for number in (1, 3):
        world.nodes[number].kill()
    world.run_for(5_000)
    assert not has_controller(world)
    world.heal()
    assert voters_of(world) == (1, 2, 3)


@pytest.mark.seeds(6)
def test_most_brokers_begin_without_the_rest_which_counts_once_it_has_come(seed: int) -> None:
    world = ClusterWorld(seed, node_count=5 if seed % 3 == 0 else 3)
    count = len(world.nodes)
    missing = world.random.sample(sorted(world.nodes), (count - 1) // 2)
    for number in missing:
        replace_disk(world.nodes[number])
    world.run_until(lambda: all(cluster_of(node).membership.is_trusted for node in world.up()))
    world.create("orders", min_insync_replicas="2")
    world.run_until(world.is_whole)
    writer = Writer(world, "orders")
    writer.send(5)
    writer.settle()
    assert len(writer.acked) == 5
    for number in missing:
        world.nodes[number].start()
    world.run_until(lambda: is_complete(world, count))
    world.run_until(lambda: all(cluster_of(node).quorum.may_vote for node in world.up()))
    # As many of the first can be lost now, and those that came late decide with the others.
    first = [number for number in world.nodes if number not in missing]
    for number in first[: len(missing)]:
        world.nodes[number].crash()
    world.run_until(lambda: has_controller(world))
    world.wait(controller_of(world).broker.topics.create("invoices", partition_count=1))
    world.heal()
    assert len({cluster_of(node).cluster_id for node in world.up()}) == 1
    leader = world.leader_of("orders")
    assert leader is not None
    assert set(world.read(leader, "orders")) == writer.acked


@pytest.mark.seeds(8)
def test_a_voter_with_a_new_disk_is_taken_in_again_and_nothing_is_lost(seed: int) -> None:
    world = ClusterWorld(seed, node_count=5 if seed % 4 == 0 else 3)
    world.heal()
    world.create("orders", min_insync_replicas="2")
    writer = Writer(world, "orders")
    count = len(world.nodes)
    for _ in range(3):
        writer.send(5)
        world.run_for(world.random.uniform(0, 500))
        victim = world.random.choice(list(world.nodes.values()))
        replace_disk(victim)
        world.run_for(world.random.uniform(0, 3_000))
        world.network.faults.loss = world.random.choice([0.0, 0.1])
        writer.send(5)
        victim.start()
        writer.send(5)
        world.run_for(world.random.uniform(0, 2_000))
        world.network.heal()
        # A second loss is survived only when what the first one took is there again.
        world.run_until(lambda: is_complete(world, count), ms_max=60_000)
    world.run_for(5_000)
    leader = world.leader_of("orders")
    assert leader is not None
    assert writer.acked <= set(world.read(leader, "orders"))
    assert writer.acked
    assert all(cluster_of(node).quorum.may_vote for node in world.up())


def test_a_voter_that_forgot_everything_does_not_help_to_elect_one_that_knows_less() -> None:
    """The entry that only the leader and the lost disk had must not be decided against."""
    world = ClusterWorld(3)
    world.heal()
    leader = controller_of(world)
    forgetful, behind = (node for node in world.nodes.values() if node is not leader)
    world.network.cut([behind.number], [leader.number, forgetful.number])
    world.wait(leader.broker.topics.create("orders", partition_count=1))
    replace_disk(forgetful)
    leader.crash()
    world.network.heal()
    forgetful.start()
    world.run_for(20_000)
    assert not has_controller(world), "two nodes that know too little must not decide anything"
    leader.start()
    world.run_until(lambda: is_complete(world))
    assert all(node.broker.topics.find("orders") is not None for node in world.up())


def test_a_node_in_no_list_joins_votes_when_told_to_and_is_forgotten_when_it_left() -> None:
    world = ClusterWorld(4)
    world.heal()
    world.create("orders")
    add(world, 9)
    world.run_until(world.is_whole)
    quorum = cluster_of(world.nodes[1]).quorum
    assert voters_of(world) == (1, 2, 3)
    assert quorum.members.learners == (9,)
    world.wait(quorum.request(ChangeVoter(9)))
    assert voters_of(world) == (1, 2, 3, 9)
    world.wait(quorum.request(ChangeVoter(3, is_wanted=False)))
    # It may have been the controller, which then leaves that to another.
    world.run_until(lambda: has_controller(world))
    assert voters_of(world) == (1, 2, 9)
    with pytest.raises(InvalidRequest, match="drain it first"):
        world.wait(quorum.request(ChangeVoter(9, is_wanted=False)))
    with pytest.raises(NodeInUse):
        world.wait(quorum.request(UnregisterNode(9)))
    world.wait(quorum.request(DrainNode(9)))
    world.wait(quorum.request(ChangeVoter(9, is_wanted=False)))
    world.run_until(lambda: voters_of(world) == (1, 2, 3))
    world.nodes.pop(9).kill()
    world.run_until(lambda: quorum.metadata.nodes[9].is_fenced)
    world.wait(quorum.request(UnregisterNode(9)))
    assert 9 not in quorum.metadata.nodes
    assert quorum.members.all == (1, 2, 3)


def test_a_clean_stop_of_the_controller_leaves_no_time_without_one() -> None:
    world = ClusterWorld(5)
    world.heal()
    leader = controller_of(world)
    term = cluster_of(leader).quorum.term
    retired: list[int] = []
    cluster_of(leader).retire(lambda: retired.append(1))
    without_ms = 0
    while not retired:
        without_ms += 0 if has_controller(world) else 10
        world.run_for(10)
    assert not cluster_of(leader).quorum.is_controller
    successor = controller_of(world)
    assert cluster_of(successor).quorum.term == term + 1
    assert without_ms <= 100, "an election by silence takes a second at least"
    assert cluster_of(successor).quorum.metadata.nodes[leader.number].is_fenced


@pytest.mark.seeds(6)
def test_a_single_node_grows_to_three_and_keeps_everything(seed: int) -> None:
    world = ClusterWorld(seed, node_count=0)
    disk = SimulatedDisk(world.random)
    kept = _live_alone(world, disk, crashes=seed % 2 == 0)
    world.peers = "1@node-1:7000" if seed % 3 else "1@node-1:7000,2@node-2:7000,3@node-3:7000"
    first = add(world, 1, disk)
    world.run_until(world.is_whole)
    name = cluster_of(first).cluster_id
    assert set(world.read(first, "orders")) == kept
    writer = Writer(world, "orders")
    writer.send(5)
    writer.settle()
    add(world, 2)
    writer.send(5)
    world.run_for(300)
    add(world, 3)
    world.run_until(lambda: is_complete(world))
    writer.send(5)
    writer.settle()
    assert len(writer.acked) == 15
    world.run_until(lambda: _copies(world, "__consumer_offsets") == 3, ms_max=60_000)
    assert {cluster_of(node).cluster_id for node in world.up()} == {name}
    assert set(world.read(first, "orders")) == kept | writer.acked
    first.crash()
    world.run_until(lambda: has_controller(world))
    world.heal()
    assert set(world.read(first, "orders")) == kept | writer.acked


def test_a_node_with_data_of_its_own_is_not_taken_for_an_empty_one_that_joins() -> None:
    world = ClusterWorld(1, node_count=0, cluster__join_only="true")
    disk = SimulatedDisk(world.random)
    _live_alone(world, disk, crashes=False)
    world.peers = "1@node-1:7000,2@node-2:7000,3@node-3:7000"
    with pytest.raises(InvalidSettings, match="use an empty folder, or unset cluster"):
        add(world, 1, disk)


def _live_alone(world: ClusterWorld, disk: SimulatedDisk, *, crashes: bool) -> set[str]:
    """What a node without a cluster has acknowledged before it ended, well or badly."""
    clock = world.clock.node(skew_ms=0)
    settings = load(environ={}, overrides={**NODE_SETTINGS, "node.id": "1"})
    broker = Broker(settings, disk, clock, world.random)
    broker.open()
    topic = world.wait(broker.topics.create("orders", partition_count=1))
    kept = {f"alone-{number}" for number in range(20)}
    batch = encode_batch([Record(b"", value.encode()) for value in sorted(kept)])
    appended = broker.producing.produce(topic, topic.partitions[0], memoryview(batch))
    assert isinstance(appended, Appended)
    done: list[GoQueueError | None] = []
    topic.partitions[0].when_committed(appended.last_offset, done.append)
    world.run_until(lambda: bool(done))
    assert done == [None]
    if not crashes:
        closed: list[bool] = []
        broker.close(lambda: closed.append(True))
        world.run_until(lambda: bool(closed))
    clock.die()
    disk.crash()
    return kept


def _copies(world: ClusterWorld, topic: str) -> int:
    metadata = cluster_of(controller_of(world)).quorum.metadata
    fact = metadata.topic(topic)
    assert fact is not None
    return min(len(one.in_sync) for one in metadata.partitions.of_topic(fact.id))


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_gives_way_when_it_is_back() -> None:
    world = ClusterWorld(7)
    world.heal()
    world.create("orders", min_insync_replicas="2")
    old = world.leader_of("orders")
    assert old is not None
    others = [number for number in world.nodes if number != old.number]
    world.network.cut([old.number], others)
    partition = old.partition("orders")
    assert partition is not None
    stale: list[GoQueueError | None] = []
    batch = encode_batch([Record(b"", b"stale")])
    appended = partition.append(memoryview(batch), now_ms=old.clock.now_ms())
    partition.when_committed(appended.last_offset, stale.append)
    world.run_until(
        lambda: any(world.nodes[number].leads("orders") for number in others), ms_max=10_000
    )
    assert old.leads("orders"), "nobody could tell it"
    assert not stale
    writer = Writer(world, "orders")
    writer.send(3)
    writer.settle()
    assert len(writer.acked) == 3
    world.heal()
    world.run_for(6_000)
    assert stale
    assert stale[0] is not None
    for node in world.up():
        assert set(world.read(node, "orders")) == writer.acked


def test_folders_of_topics_that_were_deleted_meanwhile_are_cleared_away() -> None:
    world = ClusterWorld(8)
    world.heal()
    world.create("orders")
    world.create("kept")
    away = world.nodes[2]
    away.kill()
    world.wait(world.nodes[1].broker.topics.delete("orders"))
    world.heal()
    world.run_for(500)
    assert not [name for name in away.disk.list("logs") if "orders" in name or "~" in name]
    assert "kept" in away.disk.list("logs")


def test_a_stranger_with_the_id_of_a_voter_that_runs_removes_nobody() -> None:
    world = ClusterWorld(9)
    world.heal()
    quorum = cluster_of(controller_of(world)).quorum
    real = next(node for node in world.up() if not cluster_of(node).quorum.is_controller)
    stranger = RegisterNode(
        real.number,
        b"another life",
        {"internal": "elsewhere:7000"},
        disk=b"another disk",
        support=SUPPORT,
    )
    with pytest.raises(NodeConflict):
        world.wait(quorum.request(stranger))
    world.run_for(1_000)
    assert voters_of(world) == (1, 2, 3)
    assert cluster_of(real).membership.is_trusted


def test_a_voter_without_its_quorum_files_comes_back_as_one_with_another_disk() -> None:
    world = ClusterWorld(10)
    world.heal()
    world.create("orders", min_insync_replicas="2")
    writer = Writer(world, "orders")
    writer.send(5)
    writer.settle()
    victim = world.nodes[2]
    before = cluster_of(victim).formation.me.disk
    victim.kill()
    for name in victim.disk.list("meta/quorum"):
        victim.disk.remove(f"meta/quorum/{name}")
    victim.start()
    assert cluster_of(victim).formation.me.disk != before
    assert not cluster_of(victim).quorum.may_vote
    world.run_until(lambda: is_complete(world))
    world.run_until(lambda: cluster_of(victim).quorum.may_vote)
    world.run_for(3_000)
    assert set(world.read(victim, "orders")) == writer.acked


def test_the_data_of_one_node_is_not_that_of_another() -> None:
    world = ClusterWorld(11)
    world.heal()
    world.nodes[2].kill()
    world.nodes[3].kill()
    with pytest.raises(InvalidSettings, match="the data is that of node 2"):
        add(world, 3, world.nodes[2].disk)


@pytest.mark.seeds(10)
def test_a_power_failure_while_a_node_begins_to_grow_costs_nothing(seed: int) -> None:
    world = ClusterWorld(seed, node_count=0)
    disk = SimulatedDisk(world.random)
    kept = _live_alone(world, disk, crashes=True)
    world.peers = "1@node-1:7000"
    for _ in range(3):
        disk.crash_at(world.random.randint(1, 60))
        with suppress(PowerLost):
            add(world, 1, disk)
            world.run_for(world.random.uniform(0, 300))
        world.nodes[1].crash()
    node = add(world, 1, disk)
    world.run_until(world.is_whole)
    assert set(world.read(node, "orders")) == kept


def test_copies_that_went_elsewhere_while_a_node_was_down_are_cleared_away() -> None:
    world = ClusterWorld(12)
    world.heal()
    add(world, 4)
    world.run_until(world.is_whole)
    world.create("orders")
    writer = Writer(world, "orders")
    writer.send(3)
    writer.settle()
    metadata = cluster_of(controller_of(world)).quorum.metadata
    topic = metadata.topic("orders")
    assert topic is not None
    fact = metadata.partitions.get(topic.id, 0)
    assert fact is not None
    away = world.nodes[next(one for one in fact.replicas if one != fact.leader)]
    others = [one for one in world.nodes if one != away.number]
    away.kill()
    quorum = cluster_of(world.nodes[fact.leader]).quorum
    world.run_until(lambda: quorum.metadata.nodes[away.number].is_fenced)
    world.wait(quorum.request(Reassign(topic.id, 0, tuple(others))))
    world.run_until(
        lambda: away.number not in quorum.metadata.partitions.get(topic.id, 0).members  # type: ignore[union-attr]
    )
    assert away.disk.exists("logs/orders/0")
    world.heal()
    world.run_for(500)
    assert not away.disk.exists("logs/orders/0")
