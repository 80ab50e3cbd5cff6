"""Dead letters: list and redrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.dead_letters import Letter, LetterFilter, Redrive, RedriveOrder
from goqueue.model.dead_letters import UNKNOWN
from goqueue.wire.http.bodies import deadletters as bodies
from goqueue.wire.http.bodies.messages import Damage
from goqueue.wire.http.fields import Encoding
from goqueue.wire.http.messages import message_fields, read, show
from goqueue.wire.http.moments import time_ms

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def list_all(
    front: FrontEnd, call: Call, query: bodies.ListDeadLetters
) -> bodies.DeadLetters:
    page = await front.gate.dead_letters.list(
        call.session,
        topic=call.text("topic"),
        dead_letter_topic=query.dead_letter_topic,
        filter=_filter(front, query),
        limit=query.limit,
        positions=_positions(query.cursor),
    )
    return bodies.DeadLetters(
        messages=[_show(page.dead_letter_topic, one, query.encoding) for one in page.letters],
        cursor=",".join(f"{number}:{offset}" for number, offset in enumerate(page.positions)),
        end=page.is_last,
        total=page.total,
        matching=page.matching,
        matching_is_complete=page.is_counted,
        damaged=[
            Damage(
                partition=one.partition,
                offset=one.offset,
                next_offset=one.next_offset,
                detail=one.detail,
            )
            for one in page.damaged
        ],
    )


async def summary(
    front: FrontEnd, call: Call, query: bodies.SummariseDeadLetters
) -> bodies.DeadLetterSummary:
    found = await front.gate.dead_letters.summary(
        call.session, topic=call.text("topic"), dead_letter_topic=query.dead_letter_topic
    )
    keys = [(show(key, "utf8"), count) for key, count in found.keys]
    return bodies.DeadLetterSummary(
        messages=found.letters,
        reasons=[bodies.ReasonCount(reason=one, messages=count) for one, count in found.reasons],
        groups=[bodies.LetterGroupCount(group=one, messages=count) for one, count in found.groups],
        keys=[
            bodies.KeyCount(key=key or "", key_encoding=encoding, messages=count)
            for (key, encoding), count in keys
        ],
        first_died_at=found.first_ms,
        last_died_at=found.last_ms,
        is_complete=found.is_complete,
    )


async def start(front: FrontEnd, call: Call, body: bodies.StartRedrive) -> bodies.RedriveStarted:
    topic, letters = call.text("topic"), front.gate.dead_letters
    order = RedriveOrder(
        filter=LetterFilter() if body.filter is None else _filter(front, body.filter),
        letters=(
            None
            if body.messages is None
            else [(one.partition, one.offset) for one in body.messages]
        ),
        count_max=body.max_messages,
        rate_per_s=body.rate_per_s,
        keep_copy=body.keep_copy,
        target_topic=body.target_topic,
    )
    if not body.dry_run:
        job = await letters.redrive(
            call.session, topic=topic, dead_letter_topic=body.dead_letter_topic, order=order
        )
        return bodies.RedriveStarted(redrive=_show_job(job))
    preview = await letters.preview(
        call.session, topic=topic, dead_letter_topic=body.dead_letter_topic, order=order
    )
    return bodies.RedriveStarted(
        preview=bodies.RedrivePreview(
            matching=preview.matching,
            passed_over=preview.passed_over,
            is_complete=preview.is_complete,
            messages=[
                _show(preview.dead_letter_topic, one, body.encoding) for one in preview.letters
            ],
        )
    )


async def list_jobs(front: FrontEnd, call: Call, _: object) -> bodies.Redrives:
    jobs = await front.gate.dead_letters.redrives(call.session, topic=call.text("topic"))
    return bodies.Redrives(redrives=[_show_job(job) for job in jobs])


async def show_job(front: FrontEnd, call: Call, _: object) -> bodies.Redrive:
    return _show_job(
        await front.gate.dead_letters.show_redrive(
            call.session, topic=call.text("topic"), redrive_id=call.text("redrive_id")
        )
    )


async def pause(front: FrontEnd, call: Call, _: object) -> bodies.Redrive:
    return _show_job(
        await front.gate.dead_letters.pause_redrive(
            call.session, topic=call.text("topic"), redrive_id=call.text("redrive_id")
        )
    )


async def resume(front: FrontEnd, call: Call, _: object) -> bodies.Redrive:
    return _show_job(
        await front.gate.dead_letters.resume_redrive(
            call.session, topic=call.text("topic"), redrive_id=call.text("redrive_id")
        )
    )


async def cancel(front: FrontEnd, call: Call, _: object) -> bodies.Redrive:
    return _show_job(
        await front.gate.dead_letters.cancel_redrive(
            call.session, topic=call.text("topic"), redrive_id=call.text("redrive_id")
        )
    )


def _filter(front: FrontEnd, asked: bodies.LetterFilter | bodies.ListDeadLetters) -> LetterFilter:
    now_ms = front.now_ms()
    header = asked.header if isinstance(asked, bodies.LetterFilter) else None
    return LetterFilter(
        reason=asked.reason,
        group=asked.group,
        key=read(asked.key, asked.key_encoding, "key"),
        from_ms=None if asked.from_ is None else time_ms(asked.from_, now_ms=now_ms, field="from"),
        until_ms=(
            None if asked.until is None else time_ms(asked.until, now_ms=now_ms, field="until")
        ),
        header=(
            None
            if header is None
            else (header.name, read(header.value, header.encoding, "header.value"))
        ),
    )


def _positions(cursor: str | None) -> list[int] | None:
    """The next offset of each partition; a cursor contains some partitions, in any order."""
    if cursor is None:
        return None
    named = {
        int(number): int(offset) for number, offset in (one.split(":") for one in cursor.split(","))
    }
    return [named.get(number, 0) for number in range(min(max(named) + 1, 10_000))]


def _show(topic: str, letter: Letter, encoding: Encoding) -> bodies.DeadLetter:
    origin = letter.origin
    return bodies.DeadLetter(
        **message_fields(topic, letter.partition, letter.record, encoding),
        reason=None if origin is None else origin.reason,
        attempts=None if origin is None else _known(origin.attempts),
        died_at=None if origin is None else _known(origin.time_ms),
        source=(
            None
            if origin is None
            else bodies.DeadLetterSource(
                topic=origin.topic,
                partition=origin.partition,
                offset=origin.offset,
                group=origin.group,
            )
        ),
    )


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number


def _show_job(job: Redrive) -> bodies.Redrive:
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
        keep_copy=job.order.keep_copy,
        rate_per_s=job.order.rate_per_s,
        created_at=job.created_ms,
        ended_at=job.ended_ms,
        problem=job.problem,
        history=[bodies.RedriveEvent(time=one.time_ms, what=one.what) for one in job.history],
    )
