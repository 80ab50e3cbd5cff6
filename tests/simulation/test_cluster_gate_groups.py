"""Groups asked of any node of a cluster: their coordinator or owner answers."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.group_offsets import (
    CommitOffsets,
    OffsetToCommit,
    ResetOffset,
)
from goqueue.broker.gate.areas.groups import GroupType, QueueGroup, QueueSettings
from goqueue.broker.gate.areas.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerHeartbeat,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Sync,
)
from goqueue.broker.gate.areas.polling import Poll
from goqueue.broker.gate.areas.records import At, Position
from goqueue.loop.promise import Cancellation
from goqueue.model.errors import (
    GroupKindMismatch,
    InvalidGroupSettings,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

SESSION = Session("kafka", principal="User:alice", client_host="10.0.0.1")
TOPIC = "orders"


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    world.create(TOPIC, partitions=2)
    return world


def entries(world: ClusterWorld) -> list[tuple[ClusterNode, str]]:
    """Every node with the name of a group; most of them another node coordinates."""
    found = [(node, f"group-{number}") for number, node in world.nodes.items()]
    assert any(node.broker.groups.coordinator_of(name) != node.number for node, name in found)
    return found


def produce(world: ClusterWorld, *values: str) -> None:
    outcomes: list[Exception | None] = []
    world.produce(TOPIC, list(values), lambda _, error: outcomes.append(error))
    world.run_until(lambda: outcomes == [None])


def commit(group: str, **offsets: int) -> CommitOffsets:
    """Offsets of partitions that are named as `orders_0`."""
    return CommitOffsets(
        group_id=group,
        offsets=[
            OffsetToCommit(topic=name[:-2], partition=int(name[-1]), offset=offset)
            for name, offset in offsets.items()
        ],
    )


def test_stream_groups_begin_commit_reset_and_go(world: ClusterWorld) -> None:
    produce(world, "a", "b", "c")
    for node, group in entries(world):
        gate = node.broker.gate
        made = world.wait(
            gate.groups.put_stream(SESSION, group=group, topics=[TOPIC], start="latest")
        )
        assert (made.group_id, made.members) == (group, ())
        errors = world.wait(
            gate.group_offsets.commit(SESSION, call=commit(group, orders_0=1, nowhere_0=7))
        ).errors
        assert [(place, type(one)) for place, one in errors.items()] == [
            (("nowhere", 0), UnknownTopic)
        ]
        fetched = world.wait(gate.group_offsets.fetch(SESSION, group=group, is_stable=True))
        assert {number: one.offset for number, one in fetched.offsets[TOPIC].items()} == {
            0: 1,
            1: 0,
        }
        lag = world.wait(gate.groups.lag(SESSION, group=group))
        assert (lag.kind, [one.lag for one in lag.partitions]) == ("stream", [2, 0])
        reset = gate.group_offsets.reset(
            SESSION,
            group=group,
            topic=TOPIC,
            partitions=[0],
            target=Position(At.OFFSET, 2),
            is_dry_run=False,
        )
        assert world.wait(reset) == [ResetOffset(0, 1, 2)]
        deleted = gate.group_offsets.delete(SESSION, group=group, partitions={TOPIC: [0, 9]})
        assert list(world.wait(deleted).errors) == [(TOPIC, 9)]
        world.wait(gate.groups.delete(SESSION, group=group))
        with pytest.raises(UnknownGroup):
            world.wait(gate.groups.describe(SESSION, group=group))


def test_queue_groups_are_made_changed_and_deleted(world: ClusterWorld) -> None:
    for node, group in entries(world):
        groups = node.broker.gate.groups
        settings = QueueSettings(visibility_ms=5_000)
        made = world.wait(groups.put_queue(SESSION, group=group, settings=settings))
        assert made == QueueGroup(group, settings, [])
        changes: dict[str, str | bool | int | float | None] = {
            "deliveries_max": 7,
            "visibility_ms": None,
        }
        changed = world.wait(groups.change_queue(SESSION, group=group, changes=changes))
        assert changed.settings == QueueSettings(deliveries_max=7)
        with pytest.raises(InvalidGroupSettings) as refused:
            world.wait(groups.change_queue(SESSION, group=group, changes={"visibility_ms": 0}))
        assert refused.value.problem == "Expected `int` >= 1 - at `$.visibility_ms`"
        assert world.wait(groups.describe(SESSION, group=group)) == changed
        assert world.wait(groups.lag(SESSION, group=group)) == ("queue", [])
        with pytest.raises(GroupKindMismatch):
            world.wait(groups.put_stream(SESSION, group=group, topics=[TOPIC], start="earliest"))
        world.wait(groups.delete(SESSION, group=group))
        with pytest.raises(UnknownGroup):
            world.wait(groups.describe(SESSION, group=group))


def test_the_topics_of_a_queue_group_are_those_that_its_owner_knows(world: ClusterWorld) -> None:
    produce(world, "a")
    entry = world.nodes[1]
    groups = entry.broker.gate.groups
    names = [f"workers-{number}" for number in range(6)]
    for name in names:
        world.wait(groups.put_queue(SESSION, group=name, settings=None))
        owner = world.nodes[entry.broker.queues.groups.owner_of(name)]
        world.wait(owner.broker.queues.receive(name, TOPIC, consumer="one").promise)
        assert world.wait(groups.put_queue(SESSION, group=name, settings=None)).topics == [TOPIC]
    broker = entry.broker
    assert any(
        broker.queues.groups.owner_of(name) != broker.groups.coordinator_of(name) for name in names
    )


def test_every_node_lists_the_groups_of_all(world: ClusterWorld) -> None:
    for node, group in entries(world):
        gate = node.broker.gate
        world.wait(gate.groups.put_stream(SESSION, group=group, topics=[TOPIC], start="latest"))
    world.wait(world.nodes[1].broker.gate.groups.put_queue(SESSION, group="a", settings=None))
    world.run_for(1_000)
    for node in world.nodes.values():
        groups = node.broker.gate.groups
        found = world.wait(groups.list(SESSION))
        assert [(one.name, one.kind) for one in found] == [
            ("a", "queue"),
            ("group-1", "stream"),
            ("group-2", "stream"),
            ("group-3", "stream"),
        ]
        assert [one.name for one in world.wait(groups.list(SESSION, prefix="group-2"))] == [
            "group-2"
        ]
        consumers = groups.list(SESSION, kind="stream", types=frozenset({GroupType.CONSUMER}))
        assert world.wait(consumers) == []


def test_a_member_polls_through_any_node(world: ClusterWorld) -> None:
    for node, group in entries(world):
        polling = node.broker.gate.polling
        beat = ConsumerHeartbeat(
            group_id=group,
            member_id="",
            member_epoch=JOIN_EPOCH,
            rebalance_timeout_ms=10_000,
            subscribed_topics=(TOPIC,),
            owned=frozenset(),
        )
        joined = world.wait(polling.join(SESSION, call=beat))
        assert joined.assignment == {(TOPIC, 0), (TOPIC, 1)}
        member_id, epoch = joined.member_id, joined.member_epoch
        poll = Poll(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            records_max=10,
            bytes_max=1 << 20,
            is_committing=True,
            start="latest",
        )
        waiting = polling.poll(SESSION, call=poll, wait_ms=4_000, cancellation=Cancellation())
        world.run_for(500)
        assert not waiting.is_done
        produce(world, group)
        polled = world.wait(waiting)
        assert [one.record.value for one in polled.records] == [group.encode()]
        stay = ConsumerHeartbeat(group_id=group, member_id=member_id, member_epoch=epoch)
        assert world.wait(polling.heartbeat(SESSION, call=stay)).assignment is None
        shown = world.wait(node.broker.gate.groups.describe_stream(SESSION, group=group))
        assert [one.member_id for one in shown.members] == [member_id]
        report = world.wait(node.broker.gate.groups.rebalances(SESSION, group=group))
        assert report.reasons == {"member_joined": 1}
        gone = ConsumerHeartbeat(group_id=group, member_id=member_id, member_epoch=LEAVE_EPOCH)
        world.wait(polling.leave(SESSION, call=gone))
        with pytest.raises(UnknownMember):
            world.wait(polling.heartbeat(SESSION, call=stay))


def test_a_poll_that_is_cancelled_ends_on_the_coordinator(world: ClusterWorld) -> None:
    entry, group = next(
        (node, group)
        for node, group in entries(world)
        if node.broker.groups.coordinator_of(group) != node.number
    )
    coordinator = world.nodes[entry.broker.groups.coordinator_of(group)]
    beat = ConsumerHeartbeat(
        group_id=group,
        member_id="one",
        member_epoch=JOIN_EPOCH,
        rebalance_timeout_ms=10_000,
        subscribed_topics=(TOPIC,),
        owned=frozenset(),
    )
    joined = world.wait(entry.broker.gate.polling.join(SESSION, call=beat))
    poll = Poll(
        group_id=group,
        member_id="one",
        member_epoch=joined.member_epoch,
        records_max=10,
        bytes_max=1 << 20,
    )
    cancellation = Cancellation()
    waiting = entry.broker.gate.polling.poll(
        SESSION, call=poll, wait_ms=4_000, cancellation=cancellation
    )
    world.run_for(300)
    forwarder = coordinator.broker.gate._dispatcher.forwarder
    assert forwarder is not None
    assert len(forwarder._served) == 1
    cancellation.cancel()
    world.run_for(300)
    assert waiting.is_done
    assert forwarder._served == {}
    assert coordinator.broker.groups.rebalance_watch._watches == {}


def test_classic_members_are_coordinated_through_any_node(world: ClusterWorld) -> None:
    for node, group in entries(world):
        members = node.broker.gate.members
        join = Join(
            group_id=group,
            client_id="till",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b"\0\0"),),
        )
        joined = world.wait(members.join(SESSION, call=join))
        assert joined.leader_id == joined.member_id
        assert joined.member_id.startswith("till-")
        sync = Sync(
            group_id=group,
            member_id=joined.member_id,
            generation=joined.generation,
            assignments={joined.member_id: b"mine"},
        )
        assert world.wait(members.sync(SESSION, call=sync)).assignment == b"mine"
        beat = Heartbeat(group_id=group, member_id=joined.member_id, generation=joined.generation)
        world.wait(members.heartbeat(SESSION, call=beat))
        leaving = (LeavingMember(member_id=joined.member_id), LeavingMember(member_id="nobody"))
        left = world.wait(members.leave(SESSION, call=Leave(group_id=group, members=leaving)))
        assert [type(one.error) for one in left.members] == [type(None), UnknownMember]


def test_consumers_are_coordinated_through_any_node(world: ClusterWorld) -> None:
    for node, group in entries(world):
        beat = ConsumerHeartbeat(
            group_id=group,
            member_id="one",
            member_epoch=JOIN_EPOCH,
            rebalance_timeout_ms=10_000,
            subscribed_topics=(TOPIC,),
            owned=frozenset(),
        )
        joined = world.wait(node.broker.gate.members.consumer_heartbeat(SESSION, call=beat))
        assert joined.assignment == {(TOPIC, 0), (TOPIC, 1)}


def test_a_client_finds_the_coordinator_by_any_node(world: ClusterWorld) -> None:
    for node, group in entries(world):
        found = world.wait(node.broker.local_gate.groups.find_coordinators(SESSION, groups=[group]))
        assert found == {group: node.broker.groups.coordinator_of(group)}
