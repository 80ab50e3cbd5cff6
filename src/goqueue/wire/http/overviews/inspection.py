"""Histograms, calendars, readers of topics, messages in flight, dead-letter topics, subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from goqueue.broker.gate.areas.overviews.inspection import Place
from goqueue.broker.gate.areas.records import EARLIEST as FROM_START
from goqueue.broker.gate.areas.records import Span
from goqueue.broker.gate.areas.schemas import ALL_CONTEXTS
from goqueue.wire.carrier.problems import InvalidField, problem_of
from goqueue.wire.http.fields import INT32_MAX, INT64_MAX
from goqueue.wire.http.messages import message_id
from goqueue.wire.http.moments import EARLIEST, LATEST, due_ms, time_ms
from goqueue.wire.http.overviews import inspection_bodies as bodies
from goqueue.wire.http.overviews.lists import group_stats, share_groups
from goqueue.wire.http.overviews.slices import cursor_after

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

DAY_MS = 24 * 3_600_000
_FIRST_BYTES = 1  # the first record, whatever its size


async def histogram(front: FrontEnd, call: Call, query: bodies.ReadHistogram) -> bodies.Histogram:
    topic = front.gate.topics.get(call.session, topic=call.text("topic"))
    name, count = topic.name, topic.partition_count
    now_ms = front.now_ms()
    until_ms = now_ms if query.until in (None, LATEST) else _moment(query.until, now_ms, "until")
    if query.from_ == EARLIEST:
        from_ms = await _oldest_ms(front, call, name, count, until_ms)
    else:
        from_ms = _moment(query.from_, now_ms, "from")
    times_ms = _edges(from_ms, until_ms, query.buckets)
    found = await front.gate.inspection.histogram(
        call.session, topic=name, partition=query.partition, times_ms=times_ms
    )
    return bodies.Histogram(
        from_=times_ms[0],
        until=times_ms[-1],
        bucket_ms=times_ms[1] - times_ms[0],
        counts=found.counts,
        partitions=found.partitions,
    )


def _moment(text: str | None, now_ms: int, field: str) -> int:
    assert text is not None
    if text in (EARLIEST, LATEST):
        return 0 if text == EARLIEST else now_ms
    return time_ms(text, now_ms=now_ms, field=field)


async def _oldest_ms(
    front: FrontEnd, call: Call, topic: str, partition_count: int, until_ms: int
) -> int:
    page = await front.gate.records.read(
        call.session,
        topic=topic,
        spans=[Span(number, FROM_START) for number in range(partition_count)],
        records_max=1,
        bytes_max=_FIRST_BYTES,
        cancellation=call.cancellation,
    )
    return min((one.timestamp_ms for _, one in page.records), default=until_ms - 1)


def _edges(from_ms: int, until_ms: int, buckets: int) -> list[int]:
    """Return the times between intervals of equal length."""
    if not 0 <= from_ms < until_ms:
        raise InvalidField("The range ends before it begins.", field="until")
    step_ms = max(1, -(-(until_ms - from_ms) // buckets))
    count = -(-(until_ms - from_ms) // step_ms)
    return [from_ms + number * step_ms for number in range(count + 1)]


async def readers(front: FrontEnd, call: Call, _: object) -> bodies.TopicReaders:
    topic = front.gate.topics.get(call.session, topic=call.text("topic")).name
    found, missing = await front.gate.inspection.readers(call.session, topic=topic)
    shares = await share_groups(front, call, [(one.figures.name, one.kind) for one in found])
    groups = [
        bodies.TopicReader(
            name=one.figures.name,
            kind=one.kind,
            state=one.state,
            share=one.figures.name in shares,
            stats=group_stats(one.figures, shares.get(one.figures.name)),
        )
        for one in found
    ]
    return bodies.TopicReaders(groups=groups, missing_nodes=missing)


async def deliveries(front: FrontEnd, call: Call, _: object) -> bodies.Deliveries:
    topic = front.gate.topics.get(call.session, topic=call.text("topic")).name
    found, missing = await front.gate.inspection.deliveries(
        call.session,
        topic=topic,
        partition=call.number("partition", most=INT32_MAX),
        offset=call.number("offset", most=INT64_MAX),
    )
    return bodies.Deliveries(
        deliveries=[
            bodies.Delivery(
                group=one.group,
                kind=one.kind,
                state=one.state,  # type: ignore[arg-type]
                attempts=one.attempts,
                consumer=one.consumer,
                leased_until=one.until_ms,
                due_at=one.due_ms,
            )
            for one in found
        ],
        missing_nodes=missing,
    )


# Messages in flight


async def in_flight(front: FrontEnd, call: Call, query: bodies.ListInFlight) -> bodies.InFlight:
    page = await front.gate.inspection.in_flight(
        call.session,
        group=call.name("group"),
        topic=query.topic,
        partition=query.partition,
        consumer=query.consumer,
        after=_place(query.cursor) if query.cursor else None,
        limit=query.limit,
    )
    messages = [
        bodies.MessageInFlight(
            id=message_id(query.topic, one.partition, one.offset),
            topic=query.topic,
            partition=one.partition,
            offset=one.offset,
            consumer=one.consumer,
            attempt=one.attempt,
            leased_at=one.leased_ms,
            leased_until=one.until_ms,
            priority=one.lane,  # type: ignore[arg-type]
        )
        for one in page.messages
    ]
    last = messages[-1] if messages else None
    return bodies.InFlight(
        messages=messages,
        consumers=[
            bodies.HoldingConsumer(consumer=name, messages=count)
            for name, count in page.consumers.items()
        ],
        total=page.total,
        cursor="" if page.is_last or last is None else f"{last.partition}:{last.offset}",
    )


def _place(cursor: str) -> Place:
    partition, _, offset = cursor.partition(":")
    return Place(int(partition), int(offset))


async def settle(front: FrontEnd, call: Call, body: bodies.SettleByHand) -> bodies.SettledByHand:
    places = [Place(one.partition, one.offset) for one in body.messages]
    if len(set(places)) < len(places):
        raise InvalidField("A message is given twice.", field="messages")
    errors = await front.gate.inspection.settle(
        call.session,
        group=call.name("group"),
        topic=body.topic,
        action=body.action,
        places=places,
        delay_ms=body.delay_ms,
        visibility_ms=body.visibility_ms,
        reason=body.reason,
    )
    results = [
        bodies.HandResult(
            partition=place.partition,
            offset=place.offset,
            problem=UNSET if error is None else problem_of(error),
        )
        for place, error in zip(places, errors, strict=True)
    ]
    return bodies.SettledByHand(results=results, failed=sum(one is not None for one in errors))


# Schedules and dead letters


async def calendar(front: FrontEnd, call: Call, query: bodies.ReadCalendar) -> bodies.Calendar:
    from_ms = front.now_ms() if query.from_ is None else due_ms(query.from_, field="from")
    until_ms = from_ms + DAY_MS if query.until is None else due_ms(query.until, field="until")
    times_ms = _edges(from_ms, until_ms, query.buckets)
    found = await front.gate.schedules.calendar(call.session, topic=query.topic, times_ms=times_ms)
    return bodies.Calendar(
        from_=times_ms[0],
        until=times_ms[-1],
        bucket_ms=times_ms[1] - times_ms[0],
        counts=list(found.counts),
        nodes=sorted(found.nodes),
    )


async def dead_letter_topics(
    front: FrontEnd, call: Call, query: bodies.ListDeadLetterTopics
) -> bodies.DeadLetterTopics:
    page = await front.gate.dead_letters.topics(
        call.session, match=query.match.lower(), after=query.cursor, limit=query.limit
    )
    topics = [
        bodies.DeadLetterTopic(
            topic=one.topic,
            dead_letter_topic=one.dead_letter_topic,
            messages=one.letters,
            bytes=one.size,
        )
        for one in page.topics
    ]
    cursor = cursor_after([one.topic for one in topics], is_last=page.is_last)
    return bodies.DeadLetterTopics(topics=topics, cursor=cursor, total=page.total)


# Subjects


async def subjects(front: FrontEnd, call: Call, query: bodies.ListSubjects) -> bodies.Subjects:
    page = await front.gate.schemas.subjects(
        call.session,
        prefix=ALL_CONTEXTS,
        match=query.match.lower(),
        only_deleted=query.deleted,
        after=query.cursor,
        limit=query.limit,
    )
    found = [
        bodies.SubjectOverview(
            subject=one.subject,
            version=one.number,
            id=one.schema_id,
            type=one.kind.value,
            versions=one.versions,
        )
        for one in page.subjects
    ]
    cursor = cursor_after([one.subject for one in found], is_last=page.is_last)
    return bodies.Subjects(subjects=found, cursor=cursor)
