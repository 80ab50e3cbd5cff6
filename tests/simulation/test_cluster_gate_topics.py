"""Topics, records and placement asked of any node of a cluster: all give the same answers."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.reassignments import Move
from goqueue.broker.gate.areas.records import EARLIEST, At, Position, Published, Span
from goqueue.loop.promise import Cancellation
from goqueue.model.batch import Record
from goqueue.model.errors import NoReassignment, NotLeader, UnknownPartition, UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

SESSION = Session("test", principal="User:alice")


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    world.create("orders", partitions=3)
    return world


def publish(world: ClusterWorld, node: ClusterNode, partition: int) -> int:
    records = node.broker.gate.records
    [result] = world.wait(
        records.publish(SESSION, topic="orders", records=[Record(None, b"v")], partition=partition)
    )
    assert isinstance(result, Published)
    return result.offset


def test_every_node_publishes_reads_and_deletes_in_every_partition(world: ClusterWorld) -> None:
    for node in world.nodes.values():
        records = node.broker.gate.records
        for partition in range(3):
            offset = publish(world, node, partition)
            page = world.wait(
                records.read(
                    SESSION,
                    topic="orders",
                    spans=[Span(partition, Position(At.OFFSET, offset))],
                    records_max=10,
                    bytes_max=1000,
                    cancellation=Cancellation(),
                )
            )
            assert [record.offset for _, record in page.records] == [offset]
            left = world.wait(
                records.delete(
                    SESSION, topic="orders", partition=partition, before_offset=offset + 1
                )
            )
            assert left == offset + 1


def test_every_node_deletes_in_all_partitions(world: ClusterWorld) -> None:
    for node in world.nodes.values():
        records = node.broker.gate.records
        ends = [publish(world, node, partition) + 1 for partition in range(3)]
        deleted = world.wait(records.delete_before(SESSION, topic="orders"))
        assert deleted == list(enumerate(ends))
        bounds = world.wait(records.bounds(SESSION, topic="orders"))
        assert [one.start_offset for one in bounds] == ends


def test_a_topic_grows_from_every_node_one_after_the_other(world: ClusterWorld) -> None:
    for count, node in enumerate(world.nodes.values(), start=4):
        world.wait(node.broker.gate.topics.grow(SESSION, topic="orders", partition_count=count))
        world.run_until(lambda count=count: has_partitions(world, count))
        assert publish(world, node, count - 1) == 0


def has_partitions(world: ClusterWorld, count: int) -> bool:
    """Whether every node knows so many partitions, and one leads the last."""
    topics = [node.broker.topics.get("orders") for node in world.nodes.values()]
    return all(one.partition_count == count for one in topics) and any(
        node.leads("orders", count - 1) for node in world.nodes.values()
    )


def test_a_gate_that_does_not_route_leaves_it_to_the_client_to_find_the_leader(
    world: ClusterWorld,
) -> None:
    leader = world.leader_of("orders", 0)
    for node in world.nodes.values():
        records = node.broker.local_gate.records
        if node is leader:
            found = records.find_offset(SESSION, topic="orders", partition=0, position=EARLIEST)
            assert found is not None
            continue
        with pytest.raises(NotLeader):
            records.find_offset(SESSION, topic="orders", partition=0, position=EARLIEST)
        with pytest.raises(NotLeader):
            world.wait(records.delete(SESSION, topic="orders", partition=0, before_offset=0))


def test_every_node_has_all_nodes_compact_a_topic(world: ClusterWorld) -> None:
    world.create("state", partitions=2, cleanup_policy="compact")
    for node in world.nodes.values():
        assert world.wait(node.broker.gate.topics.compact(SESSION, topic="state")) == 2


def test_every_node_describes_topics_alike(world: ClusterWorld) -> None:
    publish(world, world.nodes[1], 0)
    found = [
        world.wait(node.broker.gate.topics.describe(SESSION, topic="orders"))
        for node in world.nodes.values()
    ]
    assert {one.offsets_in_use for one in found} == {1}
    assert len({one.summary.id for one in found}) == 1
    states = [
        world.wait(node.broker.gate.topics.partitions(SESSION, topic="orders"))
        for node in world.nodes.values()
    ]
    assert len({tuple(one.placement for one in state) for state in states}) == 1


def test_every_node_moves_replicas_and_sees_how_far_they_are(world: ClusterWorld) -> None:
    create = world.nodes[1].broker.gate.topics.create
    world.wait(create(SESSION, name="pairs", partition_count=1, replication_factor=2))
    for node in world.nodes.values():
        gate = node.broker.gate.reassignments
        world.run_until(lambda: all(_is_settled(one) for one in world.nodes.values()))
        [view] = gate.placed(SESSION, topic="pairs", numbers=[0])
        [added] = world.nodes.keys() - set(view.replicas)
        target = (view.replicas[1], added)
        moves = [Move("pairs", 0, target), Move("nowhere", 0, target)]
        moved, refused = world.wait(gate.reassign(SESSION, moves=moves, may_resize=False))
        assert moved is None
        assert isinstance(refused, UnknownTopic)
        # The followers have not fetched yet, so the move is still under way.
        [move] = world.wait(gate.progress(SESSION, topic="pairs"))
        while len(move.replicas) < len(world.nodes):  # The leader has not heard of the move yet.
            [move] = world.wait(gate.progress(SESSION, topic="pairs"))
        assert (move.view.target, move.view.adding) == (target, (added,))
        assert [one.node for one in move.replicas] == sorted(world.nodes)
    world.run_until(lambda: all(_is_settled(one) for one in world.nodes.values()))
    for node in world.nodes.values():
        gate = node.broker.gate.reassignments
        assert world.wait(gate.progress(SESSION)) == []
        [idle] = world.wait(gate.reassign(SESSION, moves=[Move("pairs", 0)]))
        assert isinstance(idle, NoReassignment)
        [error] = world.wait(gate.elect(SESSION, partitions=[TopicPartition("pairs", 9)]))
        assert isinstance(error, UnknownPartition)


def _is_settled(node: ClusterNode) -> bool:
    gate = node.broker.gate
    if gate.topics.find(SESSION, topic="pairs") is None:
        return False
    [view] = gate.reassignments.placed(SESSION, topic="pairs", numbers=[0])
    return not (view.is_moving or view.is_under_replicated or view.is_leaderless)


def test_every_node_knows_the_quorum_and_the_nodes(world: ClusterWorld) -> None:
    for node in world.nodes.values():
        gate = node.broker.gate
        state = world.wait(gate.cluster.quorum_state(SESSION))
        assert len(state.members) == 3
        assert state.leader == gate.cluster.controller(SESSION)
        assert [one.id for one in gate.cluster.nodes(SESSION)] == sorted(world.nodes)
        summary = gate.cluster.summary(SESSION)
        assert (summary.node_count, summary.leaderless_count) == (3, 0)
        assert gate.cluster.problems(SESSION).has_controller
