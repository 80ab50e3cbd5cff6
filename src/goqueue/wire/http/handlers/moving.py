"""Partitions of a cluster: leader election and reassignment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from goqueue.broker.gate.areas.reassignments import Move, MoveProgress, PartitionView
from goqueue.model.errors import ElectionNotNeeded, GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.wire.carrier.problems import InvalidField, Problem, problem_of
from goqueue.wire.http.bodies import cluster as bodies
from goqueue.wire.http.overviews.slices import slice_of

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

Outcome = tuple[PartitionView, GoQueueError | None]


async def elect(front: FrontEnd, call: Call, body: bodies.Elect) -> bodies.Changes:
    if body.partitions is not None and body.topic is None:
        raise InvalidField("Partitions need a topic; give it too.", field="topic")
    views = front.gate.reassignments.placed(call.session, topic=body.topic, numbers=body.partitions)
    errors = await front.gate.reassignments.elect(
        call.session, partitions=_names(views), is_unclean=body.unclean
    )
    outcomes = zip(views, errors, strict=True)
    return _changes(one for one in outcomes if not isinstance(one[1], ElectionNotNeeded))


# Reassignment


async def start_moves(front: FrontEnd, call: Call, body: bodies.StartMoves) -> bodies.StartedMoves:
    if (body.moves is None) == (body.away_from is None):
        raise InvalidField("Give either `moves` or `away_from`.", field="moves")
    views = _planned(front, call, body)
    moves = [Move(one.topic, one.number, one.target) for one in views]
    errors: Sequence[GoQueueError | None] = [None] * len(views)
    if body.dry_run:
        front.gate.reassignments.check(call.session, moves=moves)
    else:
        errors = await front.gate.reassignments.reassign(
            call.session,
            moves=moves,
            throttle_bytes_per_second=body.throttle_bytes_per_second,
        )
    results = [
        bodies.MoveResult(
            topic=view.topic,
            partition=view.number,
            replicas=list(view.target),
            problem=_problem(error),
        )
        for view, error in zip(views, errors, strict=True)
    ]
    return bodies.StartedMoves(results=results, failed=_failed(results))


def plan_moves(front: FrontEnd, call: Call, body: bodies.PlanMoves) -> bodies.PlannedMoves:
    reassignments = front.gate.reassignments
    if (body.away_from is None) == (body.nodes is None):
        raise InvalidField("Give either `away_from`, or `topics` and `nodes`.", field="nodes")
    if body.away_from is not None:
        topics: Sequence[str | None] = body.topics or [None]
        views = [
            one
            for topic in topics
            for one in reassignments.plan_away(call.session, node=body.away_from, topic=topic)
        ]
    elif body.topics is None or body.nodes is None:
        raise InvalidField("Name the topics that shall move.", field="topics")
    else:
        views = reassignments.plan_spread(call.session, topics=body.topics, nodes=body.nodes)
    return bodies.PlannedMoves(
        moves=[
            bodies.PlannedMove(
                topic=one.topic,
                partition=one.number,
                replicas_before=list(one.replicas),
                replicas=list(one.target),
            )
            for one in views
        ]
    )


async def throttle_moves(front: FrontEnd, call: Call, body: bodies.ThrottleMoves) -> bodies.Changes:
    views = _meant(front, call, body.topic, body.partition)
    errors = await front.gate.reassignments.throttle(
        call.session,
        partitions=_names(views),
        bytes_per_second=body.throttle_bytes_per_second or 0,
    )
    return _changes(zip(views, errors, strict=True))


async def cancel_moves(front: FrontEnd, call: Call, query: bodies.CancelMoves) -> bodies.Changes:
    views = _meant(front, call, query.topic, query.partition)
    errors = await front.gate.reassignments.reassign(
        call.session, moves=[Move(one.topic, one.number) for one in views]
    )
    return _changes(zip(views, errors, strict=True))


def _planned(front: FrontEnd, call: Call, body: bodies.StartMoves) -> list[PartitionView]:
    """The partitions to move, with their new replicas in `target`."""
    reassignments = front.gate.reassignments
    if body.away_from is not None:
        return reassignments.plan_away(call.session, node=body.away_from, topic=body.topic)
    views = []
    for move in body.moves or ():
        [view] = reassignments.placed(call.session, topic=move.topic, numbers=[move.partition])
        views.append(view._replace(target=tuple(move.replicas)))
    return views


def _meant(
    front: FrontEnd, call: Call, topic: str | None, partition: int | None
) -> list[PartitionView]:
    """The given partition, or all that are being reassigned, optionally of one topic."""
    if partition is not None and topic is None:
        raise InvalidField("A partition needs a topic; give it too.", field="topic")
    return front.gate.reassignments.moving(call.session, topic=topic, partition=partition)


def _names(views: Sequence[PartitionView]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.number) for one in views]


# Progress


async def list_moves(front: FrontEnd, call: Call, query: bodies.ListMoves) -> bodies.Moving:
    moves = await front.gate.reassignments.progress(call.session, topic=query.topic)
    page, place = slice_of(moves, query.limit, query.cursor)
    return bodies.Moving(
        reassignments=[_moving(one) for one in page], cursor=place.cursor, total=place.total
    )


def _moving(move: MoveProgress) -> bodies.MovingPartition:
    view = move.view
    return bodies.MovingPartition(
        topic=view.topic,
        partition=view.number,
        leader=None if view.is_leaderless else view.leader,
        replicas=list(view.replicas),
        target=list(view.target),
        adding=list(view.adding),
        removing=list(view.removing),
        in_sync=list(view.in_sync),
        copies=[
            bodies.Copy(
                node=one.node,
                start_offset=one.start_offset,
                end_offset=one.end_offset,
                bytes=one.size,
                bytes_per_second=one.bytes_per_second,
            )
            for one in move.replicas
        ],
        progress=move.progress,
        throttle_bytes_per_second=view.throttle_bytes_per_second or None,
        bytes_left=move.bytes_left,
        bytes_per_second=move.bytes_per_second,
        remaining_ms=move.remaining_ms,
    )


# Results


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
