"""The cluster: look at it, move partitions, drain nodes, elect leaders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from goqueue.broker.administration import NodeView, PartitionView, plan_away
from goqueue.broker.promise import Promise
from goqueue.model.errors import ElectionNotNeeded, GoQueueError
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.fields import INT32_MAX
from goqueue.wire.http.problems import InvalidField, Problem, problem_of

if TYPE_CHECKING:
    from goqueue.broker.topics import Topic
    from goqueue.wire.http.calls import Call
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
    if broker.controller_id < 0:
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


# Partitions


def list_partitions(
    front: FrontEnd, call: Call, query: bodies.ListPartitions
) -> bodies.PlacedPartitions:
    found = front.broker.administration.partitions(_topic(front, query.topic))
    return bodies.PlacedPartitions(
        partitions=[_placed(one) for one in found if _is_meant(one, query)]
    )


async def elect(front: FrontEnd, call: Call, body: bodies.Elect) -> bodies.Changes:
    administration = front.broker.administration
    if body.partitions is not None and body.topic is None:
        raise InvalidField("Partitions are those of a topic; name it too.", field="topic")
    topic = _topic(front, body.topic)
    if topic is not None and body.partitions is not None:
        views = [administration.partition(topic, number) for number in body.partitions]
    else:
        views = list(administration.partitions(topic))

    def begin(view: PartitionView) -> Promise[None]:
        named = front.broker.topics.get(view.topic)
        return administration.elect(named, view.number, is_unclean=body.unclean)

    results = []
    for view, error in await _each(views, begin):
        if not isinstance(error, ElectionNotNeeded):
            problem = _problem(error)
            results.append(bodies.Change(topic=view.topic, partition=view.number, problem=problem))
    return bodies.Changes(results=results, failed=_failed(results))


# Moving


async def start_moves(front: FrontEnd, call: Call, body: bodies.StartMoves) -> bodies.StartedMoves:
    if (body.moves is None) == (body.away_from is None):
        raise InvalidField("Give `moves` or `away_from`, one of the two.", field="moves")
    views = _moves(front, body)

    def begin(view: PartitionView) -> Promise[None]:
        topic = front.broker.topics.get(view.topic)
        return front.broker.administration.reassign(topic, view.number, view.target)

    outcomes: Iterable[tuple[PartitionView, GoQueueError | None]]
    outcomes = [(one, None) for one in views] if body.dry_run else await _each(views, begin)
    results = [
        bodies.MoveResult(
            topic=view.topic,
            partition=view.number,
            replicas=list(view.target),
            problem=_problem(error),
        )
        for view, error in outcomes
    ]
    return bodies.StartedMoves(results=results, failed=_failed(results))


def list_moves(front: FrontEnd, call: Call, query: bodies.ListMoves) -> bodies.Moving:
    """What is moving, with this node's own copies; those of the others are merged in."""
    return bodies.Moving(
        reassignments=[
            _moving(front, one)
            for one in front.broker.administration.moving()
            if query.topic in (None, one.topic)
        ]
    )


def merge_moves(_: object, answers: list[bodies.Moving]) -> bodies.Moving:
    """The moves as the node that was asked knows them, with the copies of all."""
    moves = {(one.topic, one.partition): one for one in answers[-1].reassignments}
    for answer in answers[:-1]:
        for other in answer.reassignments:
            mine = moves.get((other.topic, other.partition))
            if mine is not None:
                mine.copies += other.copies
    for one in moves.values():
        one.copies.sort(key=lambda copy: copy.node)
        one.progress = _progress(one)
    return bodies.Moving(reassignments=list(moves.values()))


async def cancel_moves(front: FrontEnd, call: Call, query: bodies.CancelMoves) -> bodies.Changes:
    administration = front.broker.administration
    if query.partition is not None and query.topic is None:
        raise InvalidField("A partition is one of a topic; name it too.", field="topic")
    topic = _topic(front, query.topic)
    if topic is not None and query.partition is not None:
        views = [administration.partition(topic, query.partition)]
    else:
        views = [one for one in administration.moving() if query.topic in (None, one.topic)]

    def begin(view: PartitionView) -> Promise[None]:
        named = front.broker.topics.get(view.topic)
        return administration.cancel_reassignment(named, view.number)

    results = [
        bodies.Change(topic=view.topic, partition=view.number, problem=_problem(error))
        for view, error in await _each(views, begin)
    ]
    return bodies.Changes(results=results, failed=_failed(results))


def _moves(front: FrontEnd, body: bodies.StartMoves) -> list[PartitionView]:
    """What is to be moved; `target` says where to."""
    administration = front.broker.administration
    if body.away_from is not None:
        administration.node(body.away_from)
        views = list(administration.partitions(_topic(front, body.topic)))
        return plan_away(views, leaving=body.away_from, nodes=administration.nodes())
    return [
        administration.partition(front.broker.topics.get(move.topic), move.partition)._replace(
            target=tuple(move.replicas)
        )
        for move in body.moves or ()
    ]


def _moving(front: FrontEnd, view: PartitionView) -> bodies.MovingPartition:
    partition = front.broker.topics.get(view.topic).partition(view.number)
    is_kept = front.broker.node_id in (*view.replicas, *view.adding)
    copy = bodies.Copy(
        node=front.broker.node_id,
        start_offset=partition.start_offset,
        end_offset=partition.end_offset,
    )
    return bodies.MovingPartition(
        topic=view.topic,
        partition=view.number,
        leader=_known(view.leader),
        replicas=list(view.replicas),
        target=list(view.target),
        adding=list(view.adding),
        removing=list(view.removing),
        in_sync=list(view.in_sync),
        copies=[copy] if is_kept else [],
        progress=0.0,
    )


def _progress(move: bodies.MovingPartition) -> float:
    """How much of the leader's records the new copy that is farthest behind has."""
    if all(node in move.in_sync for node in move.adding):
        return 1.0
    copies = {one.node: one for one in move.copies}
    leader = None if move.leader is None else copies.get(move.leader)
    if leader is None:
        return 0.0
    total = leader.end_offset - leader.start_offset
    ends = [copies[node].end_offset if node in copies else 0 for node in move.adding]
    have = max(0, min(ends) - leader.start_offset)
    # Not whole before the cluster counts on the new copies.
    return min(0.99, have / total) if total else 0.99


# Each for itself


async def _each(
    views: Sequence[PartitionView], begin: Callable[[PartitionView], Awaitable[None]]
) -> list[tuple[PartitionView, GoQueueError | None]]:
    """Begin all at once, then wait; what is refused is the affair of its partition alone."""
    begun: list[tuple[PartitionView, Awaitable[None] | GoQueueError]] = []
    for view in views:
        try:
            begun.append((view, begin(view)))
        except GoQueueError as error:
            begun.append((view, error))
    outcomes: list[tuple[PartitionView, GoQueueError | None]] = []
    for view, one in begun:
        if isinstance(one, GoQueueError):
            outcomes.append((view, one))
            continue
        try:
            await one
        except GoQueueError as error:
            outcomes.append((view, error))
        else:
            outcomes.append((view, None))
    return outcomes


def _problem(error: GoQueueError | None) -> Problem | UnsetType:
    return UNSET if error is None else problem_of(error)


def _failed(results: Sequence[bodies.Change | bodies.MoveResult]) -> int:
    return sum(isinstance(one.problem, Problem) for one in results)


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


def _topic(front: FrontEnd, name: str | None) -> Topic | None:
    return None if name is None else front.broker.topics.get(name)


def _number(call: Call) -> int:
    return call.number("node", most=INT32_MAX)


def _known(node: int) -> int | None:
    return None if node < 0 else node


def _named(views: Sequence[PartitionView]) -> str:
    names = [f"{one.topic}/{one.number}" for one in views[:NAMED_MAX]]
    more = len(views) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
