"""Schedules: list, count, show, reschedule, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.schedules import NEVER_MS
from goqueue.wire.carrier.problems import InvalidField, problem_of
from goqueue.wire.http.bodies import schedules as bodies
from goqueue.wire.http.messages import show as show_bytes
from goqueue.wire.http.messages import show_headers
from goqueue.wire.http.moments import due_ms

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def list_all(front: FrontEnd, call: Call, query: bodies.ListSchedules) -> bodies.Schedules:
    from_ms, until_ms = _stretch(query)
    page = await front.gate.schedules.list(
        call.session,
        topic=query.topic,
        from_ms=from_ms,
        until_ms=until_ms,
        limit=query.limit,
        after=query.cursor,
    )
    return bodies.Schedules(
        schedules=[
            bodies.ScheduleEntry(id=one.id, topic=one.topic, deliver_at=one.due_ms)
            for one in page.entries
        ],
        cursor=page.next_cursor,
    )


async def count(front: FrontEnd, call: Call, query: bodies.CountSchedules) -> bodies.ScheduleCount:
    from_ms, until_ms = _stretch(query)
    counted = await front.gate.schedules.count(
        call.session, topic=query.topic, from_ms=from_ms, until_ms=until_ms
    )
    return bodies.ScheduleCount(count=counted)


async def show(front: FrontEnd, call: Call, query: bodies.ShowSchedule) -> bodies.Schedule:
    schedule_id = call.text("schedule_id")
    found = await front.gate.schedules.show(call.session, schedule_id=schedule_id)
    key, key_encoding = show_bytes(found.key, query.encoding)
    value, value_encoding = show_bytes(found.value, query.encoding)
    return bodies.Schedule(
        id=found.id,
        topic=found.topic,
        partition=found.partition,
        deliver_at=found.due_ms,
        timestamp=found.timestamp_ms,
        key=key,
        key_encoding=key_encoding,
        value=value,
        value_encoding=value_encoding,
        headers=show_headers(found.headers, query.encoding),
    )


async def reschedule(front: FrontEnd, call: Call, body: bodies.Reschedule) -> bodies.Rescheduled:
    if (body.delay_ms is None) == (body.deliver_at is None):
        raise InvalidField("Give either delay_ms or deliver_at.", field="deliver_at")
    if body.delay_ms is not None:
        due = front.now_ms() + body.delay_ms
    else:
        due = due_ms(str(body.deliver_at), field="deliver_at")
    schedule_id = call.text("schedule_id")
    await front.gate.schedules.move(call.session, schedule_id=schedule_id, due_ms=due)
    return bodies.Rescheduled(id=schedule_id, deliver_at=due)


async def cancel(front: FrontEnd, call: Call, _: object) -> None:
    await front.gate.schedules.cancel(call.session, schedule_id=call.text("schedule_id"))


async def cancel_many(
    front: FrontEnd, call: Call, body: bodies.CancelSchedules
) -> bodies.CancelledSchedules:
    errors = await front.gate.schedules.cancel_many(call.session, schedule_ids=body.ids)
    results = [bodies.CancelResult(one) for one in body.ids]
    failed = 0
    if any(errors):
        for result, error in zip(results, errors, strict=True):
            if error is not None:
                result.problem = problem_of(error)
                failed += 1
    return bodies.CancelledSchedules(results=results, failed=failed)


async def stats(front: FrontEnd, call: Call, _: object) -> bodies.ScheduleStats:
    found = await front.gate.schedules.stats(call.session)
    return bodies.ScheduleStats(
        pending=found.pending,
        released=found.released,
        cancelled=found.cancelled,
        dead_lettered=found.dead_lettered,
        dropped=found.dropped,
        late_ms_p50=found.late_ms_p50,
        late_ms_p99=found.late_ms_p99,
        late_ms_max=found.late_ms_max,
        next_deliver_at=found.next_due_ms,
    )


def _stretch(query: bodies.CountSchedules) -> tuple[int, int]:
    from_ms = 0 if query.from_ is None else due_ms(query.from_, field="from")
    until_ms = NEVER_MS if query.until is None else due_ms(query.until, field="until")
    return from_ms, until_ms
