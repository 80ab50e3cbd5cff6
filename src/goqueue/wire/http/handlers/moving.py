"""Partitions of a cluster: elect their leaders, move their copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from goqueue.broker.administration import PartitionView, plan_away
from goqueue.broker.topics.topics import Topic
from goqueue.loop.promise import Promise
from goqueue.model.errors import ElectionNotNeeded, GoQueueError
from goqueue.wire.carrier.problems import InvalidField, Problem, problem_of
from goqueue.wire.http.bodies import cluster as bodies

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

Begin = Callable[[Topic, PartitionView], Promise[None]]
Outcome = tuple[PartitionView, GoQueueError | None]

PROGRESS_MAX = 0.99  # before the cluster counts on the new copies


async def elect(front: FrontEnd, call: Call, body: bodies.Elect) -> bodies.Changes:
    administration = front.broker.administration
    if body.partitions is not None and body.topic is None:
        raise InvalidField("Partitions are those of a topic; name it too.", field="topic")
    topic = _topic(front, body.topic)
    if topic is not None and body.partitions is not None:
        views = [administration.partition(topic, number) for number in body.partitions]
    else:
        views = list(administration.partitions(topic))

    def begin(topic: Topic, view: PartitionView) -> Promise[None]:
        return administration.elect(topic, view.number, is_unclean=body.unclean)

    outcomes = await _each(front, views, begin)
    return _changes(one for one in outcomes if not isinstance(one[1], ElectionNotNeeded))


# Moving


async def start_moves(front: FrontEnd, call: Call, body: bodies.StartMoves) -> bodies.StartedMoves:
    if (body.moves is None) == (body.away_from is None):
        raise InvalidField("Give `moves` or `away_from`, one of the two.", field="moves")
    views = _planned(front, body)

    def begin(topic: Topic, view: PartitionView) -> Promise[None]:
        return front.broker.administration.reassign(
            topic,
            view.number,
            view.target,
            throttle_bytes_per_second=body.throttle_bytes_per_second,
        )

    outcomes: Iterable[Outcome]
    outcomes = [(one, None) for one in views] if body.dry_run else await _each(front, views, begin)
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


async def throttle_moves(front: FrontEnd, call: Call, body: bodies.ThrottleMoves) -> bodies.Changes:
    rate = body.throttle_bytes_per_second or 0

    def begin(topic: Topic, view: PartitionView) -> Promise[None]:
        return front.broker.administration.throttle_reassignment(topic, view.number, rate)

    return _changes(await _each(front, _meant(front, body.topic, body.partition), begin))


async def cancel_moves(front: FrontEnd, call: Call, query: bodies.CancelMoves) -> bodies.Changes:
    def begin(topic: Topic, view: PartitionView) -> Promise[None]:
        return front.broker.administration.cancel_reassignment(topic, view.number)

    return _changes(await _each(front, _meant(front, query.topic, query.partition), begin))


def _planned(front: FrontEnd, body: bodies.StartMoves) -> list[PartitionView]:
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


def _meant(front: FrontEnd, topic: str | None, partition: int | None) -> list[PartitionView]:
    """A partition that is named, or all that are moving, perhaps of one topic."""
    administration = front.broker.administration
    if partition is not None and topic is None:
        raise InvalidField("A partition is one of a topic; name it too.", field="topic")
    named = _topic(front, topic)
    if named is not None and partition is not None:
        return [administration.partition(named, partition)]
    return [one for one in administration.moving() if topic in (None, one.topic)]


# How far moves are


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
        _estimate(one)
    return bodies.Moving(reassignments=list(moves.values()))


def _moving(front: FrontEnd, view: PartitionView) -> bodies.MovingPartition:
    topic = front.broker.topics.get(view.topic)
    partition = topic.partition(view.number)
    is_kept = front.broker.node_id in (*view.replicas, *view.adding)
    copy = bodies.Copy(
        node=front.broker.node_id,
        start_offset=partition.start_offset,
        end_offset=partition.end_offset,
        bytes=partition.log.size,
        bytes_per_second=front.broker.administration.copy_bytes_per_second(topic, view.number),
    )
    return bodies.MovingPartition(
        topic=view.topic,
        partition=view.number,
        leader=None if view.is_leaderless else view.leader,
        replicas=list(view.replicas),
        target=list(view.target),
        adding=list(view.adding),
        removing=list(view.removing),
        in_sync=list(view.in_sync),
        copies=[copy] if is_kept else [],
        progress=0.0,
        throttle_bytes_per_second=view.throttle_bytes_per_second or None,
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
    return min(PROGRESS_MAX, have / total) if total else PROGRESS_MAX


def _estimate(move: bodies.MovingPartition) -> None:
    """Tell how much is to be copied yet, how fast that goes, and how long it would take so."""
    copies = {one.node: one for one in move.copies}
    leader = None if move.leader is None else copies.get(move.leader)
    behind = [copies[node] for node in move.adding if node in copies and node not in move.in_sync]
    move.bytes_per_second = sum(one.bytes_per_second for one in behind)
    if leader is None:
        return
    lefts = [(max(0, leader.bytes - one.bytes), one.bytes_per_second) for one in behind]
    move.bytes_left = sum(left for left, _ in lefts)
    is_known = all(rate > 0 or not left for left, rate in lefts)
    if is_known and all(node in copies for node in move.adding):
        times = [left * 1000 // rate for left, rate in lefts if left]
        move.remaining_ms = max(times, default=0)


# Each for itself


async def _each(front: FrontEnd, views: Sequence[PartitionView], begin: Begin) -> list[Outcome]:
    """Begin all at once, then wait; what is refused is the affair of its partition alone."""
    begun: list[tuple[PartitionView, Promise[None] | GoQueueError]] = []
    for view in views:
        try:
            begun.append((view, begin(front.broker.topics.get(view.topic), view)))
        except GoQueueError as error:
            begun.append((view, error))
    outcomes: list[Outcome] = []
    for view, one in begun:
        try:
            if isinstance(one, GoQueueError):
                raise one
            await one
        except GoQueueError as error:
            outcomes.append((view, error))
        else:
            outcomes.append((view, None))
    return outcomes


def _changes(outcomes: Iterable[Outcome]) -> bodies.Changes:
    results = [
        bodies.Change(topic=view.topic, partition=view.number, problem=_problem(error))
        for view, error in outcomes
    ]
    return bodies.Changes(results=results, failed=_failed(results))


def _problem(error: GoQueueError | None) -> Problem | UnsetType:
    return UNSET if error is None else problem_of(error)


def _failed(results: Sequence[bodies.Change | bodies.MoveResult]) -> int:
    return sum(isinstance(one.problem, Problem) for one in results)


def _topic(front: FrontEnd, name: str | None) -> Topic | None:
    return None if name is None else front.broker.topics.get(name)
