"""The cluster: overview, health, draining of nodes, voters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.cluster import NodeView, PartitionView
from goqueue.model.names import INTERNAL_TOPICS
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.fields import INT32_MAX
from goqueue.wire.http.overviews.lists import cursor_of, read_cursor

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

NAMED_MAX = 5  # partitions named in one health problem


def show(front: FrontEnd, call: Call, _: object) -> bodies.Cluster:
    found = front.gate.cluster.summary(call.session)
    return bodies.Cluster(
        cluster_id=found.cluster_id,
        controller=_known(found.controller),
        voters=list(found.voters),
        answered_by=front.gate.node.identity(call.session).node_id,
        nodes=found.node_count,
        nodes_running=found.running_count,
        topics=found.topic_count,
        partitions=found.partition_count,
        leaderless=found.leaderless_count,
        under_replicated=found.under_replicated_count,
        moving=found.moving_count,
    )


def health(front: FrontEnd, call: Call, _: object) -> bodies.ClusterHealth:
    """The problems of the cluster, the worst first."""
    found = front.gate.cluster.problems(call.session)
    down: list[tuple[bodies.ProblemKind, str]] = []
    if front.waits_for:
        down.append(("waiting", front.waits_for))
    elif not found.has_controller:
        down.append(
            (
                "no_controller",
                "No active controller: most voters are unreachable, so metadata cannot change.",
            )
        )
    if found.leaderless:
        down.append(("leaderless", f"Partitions without a leader: {_named(found.leaderless)}."))
    degraded: list[tuple[bodies.ProblemKind, str]] = []
    if found.fenced:
        silent = ", ".join(map(str, found.fenced))
        degraded.append(("fenced", f"Nodes that are stopped or cannot be reached: {silent}."))
    if found.under_replicated:
        lacking = _named(found.under_replicated)
        degraded.append(
            ("under_replicated", f"Partitions with replicas that are not in sync: {lacking}.")
        )
    problems = [*down, *degraded]
    return bodies.ClusterHealth(
        status="down" if down else "degraded" if degraded else "ok",
        problems=[text for _, text in problems],
        kinds=[kind for kind, _ in problems],
    )


# The feature level


def show_level(front: FrontEnd, call: Call, _: object) -> bodies.ClusterLevel:
    found = front.gate.cluster.level(call.session)
    nodes = front.gate.cluster.nodes(call.session)
    return bodies.ClusterLevel(
        level=found.level, supported=found.supported, nodes=[_node(one) for one in nodes]
    )


async def finalize_level(
    front: FrontEnd, call: Call, body: bodies.FinalizeLevel
) -> bodies.ClusterLevel:
    level = body.level
    if level is None:
        level = front.gate.cluster.level(call.session).supported
    await front.gate.cluster.finalize(call.session, level=level)
    return show_level(front, call, None)


# Nodes


def list_nodes(front: FrontEnd, call: Call, _: object) -> bodies.Nodes:
    return bodies.Nodes(nodes=[_node(one) for one in front.gate.cluster.nodes(call.session)])


def show_node(front: FrontEnd, call: Call, _: object) -> bodies.Node:
    return _node(front.gate.cluster.node(call.session, node=_number(call)))


def show_drain(front: FrontEnd, call: Call, _: object) -> bodies.Drain:
    return _drain(front, call, _number(call))


async def drain(front: FrontEnd, call: Call, _: object) -> bodies.Drain:
    node = _number(call)
    await front.gate.cluster.drain(call.session, node=node)
    return _drain(front, call, node)


async def undrain(front: FrontEnd, call: Call, _: object) -> bodies.Drain:
    node = _number(call)
    await front.gate.cluster.drain(call.session, node=node, is_wanted=False)
    return _drain(front, call, node)


async def unregister(front: FrontEnd, call: Call, _: object) -> None:
    await front.gate.cluster.unregister(call.session, node=_number(call))


# Voters


def list_voters(front: FrontEnd, call: Call, _: object) -> bodies.Voters:
    return _voters(front, call)


async def add_voter(front: FrontEnd, call: Call, _: object) -> bodies.Voters:
    await front.gate.cluster.change_voter(call.session, node=_number(call), is_wanted=True)
    return _voters(front, call)


async def remove_voter(front: FrontEnd, call: Call, _: object) -> bodies.Voters:
    await front.gate.cluster.change_voter(call.session, node=_number(call), is_wanted=False)
    return _voters(front, call)


# Partitions


def list_partitions(
    front: FrontEnd, call: Call, query: bodies.ListPartitions
) -> bodies.PlacedPartitions:
    placed = front.gate.reassignments.placed(call.session, topic=query.topic)
    found = [one for one in placed if _is_meant(one, query)]
    if query.limit is None:
        return bodies.PlacedPartitions(partitions=[_placed(one) for one in found])
    after = read_cursor(query.cursor) if query.cursor else (-1, "")
    rest = [one for one in found if (one.topic, one.number) > (after[1], after[0])]
    page = rest[: query.limit]
    is_last = len(page) == len(rest)
    return bodies.PlacedPartitions(
        partitions=[_placed(one) for one in page],
        cursor="" if is_last else cursor_of(page[-1].number, page[-1].topic),
        total=len(found),
    )


# Responses


def _node(view: NodeView) -> bodies.Node:
    return bodies.Node(
        id=view.id,
        state=_state(view),
        addresses=dict(view.addresses),
        rack=view.rack,
        voter=view.is_voter,
        controller=view.is_controller,
        leaders=view.leader_count,
        replicas=view.replica_count,
        release=view.support.release,
        level_min=view.support.level_min,
        level_max=view.support.level_max,
    )


def _state(view: NodeView) -> bodies.NodeState:
    if view.is_fenced:
        return "fenced"
    if view.is_stopping:
        return "stopping"
    return "draining" if view.is_draining else "running"


def _voters(front: FrontEnd, call: Call) -> bodies.Voters:
    voters = [
        bodies.Voter(
            id=one.id, voter=one.is_voter, controller=one.is_controller, running=one.is_running
        )
        for one in front.gate.cluster.voters(call.session)
    ]
    return bodies.Voters(voters=voters, majority=sum(one.voter for one in voters) // 2 + 1)


def _drain(front: FrontEnd, call: Call, number: int) -> bodies.Drain:
    found = front.gate.cluster.drain_state(call.session, node=number)
    return bodies.Drain(
        node=number,
        draining=found.is_draining,
        leaders=found.leader_count,
        stuck=[f"{topic}/{partition}" for topic, partition in found.stuck],
    )


def _placed(view: PartitionView) -> bodies.PlacedPartition:
    return bodies.PlacedPartition(
        topic=view.topic,
        partition=view.number,
        leader=_known(view.leader),
        leader_epoch=view.leader_epoch,
        replicas=list(view.replicas),
        in_sync=list(view.in_sync),
        target=list(view.target),
    )


def _is_meant(view: PartitionView, query: bodies.ListPartitions) -> bool:
    if query.node is not None and query.node not in (*view.replicas, *view.adding):
        return False
    if not query.internal and view.topic in INTERNAL_TOPICS:
        return False
    if query.state == "leaderless":
        return view.is_leaderless
    if query.state == "under_replicated":
        return view.is_under_replicated
    return query.state is None or view.is_moving


def _number(call: Call) -> int:
    return call.number("node", most=INT32_MAX)


def _known(node: int) -> int | None:
    return None if node < 0 else node


def _named(views: Sequence[PartitionView]) -> str:
    names = [f"{one.topic}/{one.number}" for one in views[:NAMED_MAX]]
    more = len(views) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
