"""The cluster: look at it, drain nodes, choose who votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.administration import NodeView, PartitionView
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.fields import INT32_MAX

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

NAMED_MAX = 5  # partitions that a problem of the cluster's health names


def show(front: FrontEnd, call: Call, _: object) -> bodies.Cluster:
    broker = front.broker
    nodes = broker.administration.nodes()
    partitions = list(broker.administration.partitions())
    return bodies.Cluster(
        cluster_id=broker.cluster_id,
        controller=_known(broker.controller_id),
        voters=list(broker.administration.voters),
        answered_by=broker.node_id,
        nodes=len(nodes),
        nodes_running=sum(not one.is_fenced for one in nodes),
        topics=len(broker.topics),
        partitions=len(partitions),
        leaderless=sum(one.is_leaderless for one in partitions),
        under_replicated=sum(one.is_under_replicated for one in partitions),
        moving=sum(one.is_moving for one in partitions),
    )


def health(front: FrontEnd, call: Call, _: object) -> bodies.ClusterHealth:
    """What an operator should look at, the worst first."""
    broker = front.broker
    nodes = broker.administration.nodes()
    partitions = list(broker.administration.partitions())
    leaderless = [one for one in partitions if one.is_leaderless]
    lacking = [one for one in partitions if one.is_under_replicated and not one.is_leaderless]
    down = []
    if front.waits_for:
        down.append(front.waits_for)
    elif broker.controller_id < 0:
        down.append("No controller: most voters cannot be reached, so nothing can be changed.")
    if leaderless:
        down.append(f"Partitions that nobody can lead: {_named(leaderless)}.")
    degraded = []
    silent = [str(one.id) for one in nodes if one.is_fenced]
    if silent:
        degraded.append(f"Nodes that are stopped or cannot be reached: {', '.join(silent)}.")
    if lacking:
        degraded.append(f"Partitions with copies that are not in sync: {_named(lacking)}.")
    return bodies.ClusterHealth(
        status="down" if down else "degraded" if degraded else "ok", problems=down + degraded
    )


# Nodes


def list_nodes(front: FrontEnd, call: Call, _: object) -> bodies.Nodes:
    return bodies.Nodes(nodes=[_node(one) for one in front.broker.administration.nodes()])


def show_node(front: FrontEnd, call: Call, _: object) -> bodies.Node:
    return _node(front.broker.administration.node(_number(call)))


def show_drain(front: FrontEnd, call: Call, _: object) -> bodies.Drain:
    return _drain(front, _number(call))


async def drain(front: FrontEnd, call: Call, _: object) -> bodies.Drain:
    await front.broker.administration.drain(_number(call))
    return _drain(front, _number(call))


async def undrain(front: FrontEnd, call: Call, _: object) -> bodies.Drain:
    await front.broker.administration.drain(_number(call), is_wanted=False)
    return _drain(front, _number(call))


async def unregister(front: FrontEnd, call: Call, _: object) -> None:
    await front.broker.administration.unregister(_number(call))


# Voters


def list_voters(front: FrontEnd, call: Call, _: object) -> bodies.Voters:
    return _voters(front)


async def add_voter(front: FrontEnd, call: Call, _: object) -> bodies.Voters:
    await front.broker.administration.change_voter(_number(call), is_wanted=True)
    return _voters(front)


async def remove_voter(front: FrontEnd, call: Call, _: object) -> bodies.Voters:
    await front.broker.administration.change_voter(_number(call), is_wanted=False)
    return _voters(front)


# Partitions


def list_partitions(
    front: FrontEnd, call: Call, query: bodies.ListPartitions
) -> bodies.PlacedPartitions:
    topic = None if query.topic is None else front.broker.topics.get(query.topic)
    found = front.broker.administration.partitions(topic)
    return bodies.PlacedPartitions(
        partitions=[_placed(one) for one in found if _is_meant(one, query)]
    )


# Showing


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
    )


def _state(view: NodeView) -> bodies.NodeState:
    if view.is_fenced:
        return "fenced"
    if view.is_stopping:
        return "stopping"
    return "draining" if view.is_draining else "running"


def _voters(front: FrontEnd) -> bodies.Voters:
    members = front.broker.administration.quorum()
    voters = [
        bodies.Voter(
            id=one.id, voter=one.is_voter, controller=one.is_controller, running=one.is_running
        )
        for one in members
    ]
    return bodies.Voters(voters=voters, majority=sum(one.voter for one in voters) // 2 + 1)


def _drain(front: FrontEnd, number: int) -> bodies.Drain:
    view = front.broker.administration.node(number)
    report = front.broker.administration.drain_report(number)
    return bodies.Drain(
        node=number,
        draining=view.is_draining,
        leaders=report.leader_count,
        stuck=[f"{topic}/{partition}" for topic, partition in report.stuck],
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
