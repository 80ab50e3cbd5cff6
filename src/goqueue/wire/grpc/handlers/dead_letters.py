"""DeadLetterService: list and redrive dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.dead_letters import (
    LETTERS_NAMED_MAX,
    RATE_PER_S_MAX,
    Letter,
    LetterFilter,
    Redrive,
    RedriveOrder,
)
from goqueue.model.dead_letters import UNKNOWN
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.handlers.paging import page_size_of
from goqueue.wire.grpc.messages import dead_letter_service_pb2 as bodies
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.records import to_stored

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

PAGE_SIZE_DEFAULT = 100
PARTITIONS_MAX = 10_000  # in a cursor


async def list_all(
    front: FrontEnd, call: Call, request: bodies.ListDeadLettersRequest
) -> bodies.ListDeadLettersResponse:
    page = await front.gate.dead_letters.list(
        call.session,
        topic=request.topic,
        dead_letter_topic=request.dead_letter_topic or None,
        filter=_filter(request.filter),
        limit=page_size_of(request.page_size, PAGE_SIZE_DEFAULT),
        positions=_positions(request.cursor),
    )
    return bodies.ListDeadLettersResponse(
        letters=[_letter(page.dead_letter_topic, one) for one in page.letters],
        cursor=[
            shared.PartitionOffset(partition=number, offset=offset)
            for number, offset in enumerate(page.positions)
        ],
        total=page.total,
        unreadable=[
            shared.UnreadableRange(
                topic=page.dead_letter_topic,
                partition=one.partition,
                offset=one.offset,
                next_offset=one.next_offset,
                detail=one.detail,
            )
            for one in page.damaged
        ],
    )


async def start(
    front: FrontEnd, call: Call, request: bodies.StartRedriveRequest
) -> bodies.StartRedriveResponse:
    job = await front.gate.dead_letters.redrive(
        call.session,
        topic=request.topic,
        dead_letter_topic=request.dead_letter_topic or None,
        order=_order(request.order),
    )
    return bodies.StartRedriveResponse(redrive=_job(job))


async def preview(
    front: FrontEnd, call: Call, request: bodies.PreviewRedriveRequest
) -> bodies.PreviewRedriveResponse:
    found = await front.gate.dead_letters.preview(
        call.session,
        topic=request.topic,
        dead_letter_topic=request.dead_letter_topic or None,
        order=_order(request.order),
    )
    return bodies.PreviewRedriveResponse(
        matching=found.matching,
        passed_over=found.passed_over,
        is_complete=found.is_complete,
        letters=[_letter(found.dead_letter_topic, one) for one in found.letters],
    )


async def list_jobs(
    front: FrontEnd, call: Call, request: bodies.ListRedrivesRequest
) -> bodies.ListRedrivesResponse:
    jobs = await front.gate.dead_letters.redrives(call.session, topic=request.topic)
    return bodies.ListRedrivesResponse(redrives=map(_job, jobs))


async def get_job(
    front: FrontEnd, call: Call, request: bodies.GetRedriveRequest
) -> bodies.GetRedriveResponse:
    job = await front.gate.dead_letters.show_redrive(
        call.session, topic=request.topic, redrive_id=request.id
    )
    return bodies.GetRedriveResponse(redrive=_job(job))


async def pause(
    front: FrontEnd, call: Call, request: bodies.PauseRedriveRequest
) -> bodies.PauseRedriveResponse:
    job = await front.gate.dead_letters.pause_redrive(
        call.session, topic=request.topic, redrive_id=request.id
    )
    return bodies.PauseRedriveResponse(redrive=_job(job))


async def resume(
    front: FrontEnd, call: Call, request: bodies.ResumeRedriveRequest
) -> bodies.ResumeRedriveResponse:
    job = await front.gate.dead_letters.resume_redrive(
        call.session, topic=request.topic, redrive_id=request.id
    )
    return bodies.ResumeRedriveResponse(redrive=_job(job))


async def cancel(
    front: FrontEnd, call: Call, request: bodies.CancelRedriveRequest
) -> bodies.CancelRedriveResponse:
    job = await front.gate.dead_letters.cancel_redrive(
        call.session, topic=request.topic, redrive_id=request.id
    )
    return bodies.CancelRedriveResponse(redrive=_job(job))


def _order(asked: bodies.RedriveOrder) -> RedriveOrder:
    letters = [(one.partition, one.offset) for one in asked.letters]
    if len(letters) > LETTERS_NAMED_MAX:
        raise InvalidField(f"Name at most {LETTERS_NAMED_MAX} letters.", field="order.letters")
    return RedriveOrder(
        filter=_filter(asked.filter),
        letters=letters or None,
        count_max=_at_least_one(asked, "messages_max"),
        rate_per_s=_at_least_one(asked, "rate_per_s", RATE_PER_S_MAX),
        keep_copy=asked.keep_copy,
        target_topic=asked.target_topic or None,
    )


def _at_least_one(asked: bodies.RedriveOrder, field: str, most: int = (1 << 63) - 1) -> int | None:
    if not asked.HasField(field):
        return None
    value: int = getattr(asked, field)
    if not 1 <= value <= most:
        raise InvalidField(f"{field} is 1 to {most}.", field=f"order.{field}")
    return value


def _filter(asked: bodies.LetterFilter) -> LetterFilter:
    has, header = asked.HasField, asked.header
    return LetterFilter(
        reason=asked.reason or None,
        group=asked.group or None,
        key=asked.key if has("key") else None,
        from_ms=asked.from_ms if has("from_ms") else None,
        until_ms=asked.until_ms if has("until_ms") else None,
        header=(
            (header.name, header.value if header.HasField("value") else None)
            if has("header")
            else None
        ),
    )


def _positions(cursor: Sequence[shared.PartitionOffset]) -> list[int] | None:
    """The next offset of each partition; a cursor contains some partitions, in any order."""
    if not cursor:
        return None
    named = {one.partition: one.offset for one in cursor}
    if min(named) < 0 or max(named) >= PARTITIONS_MAX:
        raise InvalidField("This is no cursor of a response.", field="cursor")
    return [named.get(number, 0) for number in range(max(named) + 1)]


def _letter(topic: str, letter: Letter) -> bodies.DeadLetter:
    shown = bodies.DeadLetter(message=to_stored(topic, letter.partition, letter.record))
    origin = letter.origin
    if origin is not None:
        shown.reason, shown.group = origin.reason, origin.group
        shown.source_topic = origin.topic
        shown.source_partition, shown.source_offset = origin.partition, origin.offset
        if origin.attempts != UNKNOWN:
            shown.attempts = origin.attempts
        if origin.time_ms != UNKNOWN:
            shown.died_at_ms = origin.time_ms
    return shown


def _job(job: Redrive) -> bodies.Redrive:
    places = zip(job.positions, job.until_offsets, strict=True)
    return bodies.Redrive(
        id=job.id,
        topic=job.topic,
        dead_letter_topic=job.dead_letter_topic,
        state=job.state,
        moved=job.moved,
        passed_over=job.passed_over,
        failed=job.failed,
        remaining=sum(max(0, until - position) for position, until in places),
        created_at_ms=job.created_ms,
        ended_at_ms=job.ended_ms,
        problem=job.problem,
    )
