"""Reading by offset and by time, one message, and streams of events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from goqueue.broker.reading.records import Page, Place
from goqueue.model.errors import OffsetOutOfRange, UnknownMessage
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies.messages import (
    Damage,
    Message,
    Messages,
    Read,
    ReadOne,
    Stream,
)
from goqueue.wire.http.events import EventStream
from goqueue.wire.http.fields import INT32_MAX, INT64_MAX, Encoding
from goqueue.wire.http.messages import to_message
from goqueue.wire.http.moments import EARLIEST, LATEST, offset_at, times_of

if TYPE_CHECKING:
    from goqueue.broker.reading.remote import Bounds
    from goqueue.broker.topics.topics import Topic
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

PARTITIONS_PER_READ_MAX = 1000
PARTITIONS_PER_STREAM_MAX = 100  # every event names the place in all of them


async def read(front: FrontEnd, call: Call, query: Read) -> Messages:
    topic = front.broker.topics.get(call.text("topic"))
    places = await _places(
        front, topic, query, query.from_ or EARLIEST, query.until, most=PARTITIONS_PER_READ_MAX
    )
    reading = front.broker.read(
        places,
        records_max=query.limit,
        bytes_max=front.limits.answer_bytes_max,
        wait_ms=query.wait_ms,
        is_committed_only=_is_committed_only(query),
    )
    call.on_cancel(reading.cancel)
    page = await reading.promise
    return Messages(
        messages=messages_of(page, query.encoding),
        cursor=cursor_of(page.places),
        damaged=damages_of(page),
    )


async def read_one(front: FrontEnd, call: Call, query: ReadOne) -> Message:
    topic = front.broker.topics.get(call.text("topic"))
    number = call.number("partition", most=INT32_MAX)
    offset = call.number("offset", most=INT64_MAX)
    partition = topic.partition(number)
    [bounds] = await front.broker.look(topic, [number])
    start, end = bounds.start_offset, bounds.high_watermark
    if start <= offset < end:
        reading = front.broker.read(
            [Place(partition, offset, offset + 1)],
            records_max=1,
            bytes_max=front.limits.answer_bytes_max,
            is_committed_only=_is_committed_only(query),
        )
        page = await reading.promise
        if page.damaged:
            raise page.damaged[0].error
        for _, record in page.records:
            return to_message(topic.name, number, record, query.encoding)
    raise UnknownMessage(partition.name, offset, start=start, end=end - 1)


async def stream(front: FrontEnd, call: Call, query: Stream) -> EventStream:
    topic = front.broker.topics.get(call.text("topic"))
    if call.last_event_id:
        query.cursor = call.last_event_id
        query.partition = query.offset = query.from_ = None
    places = await _places(
        front, topic, query, query.from_ or LATEST, None, most=PARTITIONS_PER_STREAM_MAX
    )
    return EventStream(
        front.broker,
        topic.name,
        places,
        query.encoding,
        is_committed_only=_is_committed_only(query),
    )


def messages_of(page: Page, encoding: Encoding) -> list[Message]:
    return [
        to_message(partition.name.topic, partition.name.partition, record, encoding)
        for partition, record in page.records
    ]


def damages_of(page: Page) -> list[Damage]:
    return [
        Damage(
            partition=one.partition.name.partition,
            offset=one.offset,
            next_offset=one.next_offset,
            detail=str(one.error),
        )
        for one in page.damaged
    ]


def cursor_of(places: list[Place]) -> str:
    return ",".join(f"{place.partition.name.partition}:{place.offset}" for place in places)


async def _places(
    front: FrontEnd,
    topic: Topic,
    query: Read | Stream,
    begin: str,
    until: str | None,
    *,
    most: int,
) -> list[Place]:
    """Where to read, from a cursor, from an offset, or from a moment in one or all partitions."""
    offsets = _named_offsets(topic, query, most=most)
    if offsets is None:
        chosen = range(len(topic.partitions)) if query.partition is None else [query.partition]
        _check_count(len(chosen), most=most)
    else:
        chosen = list(offsets)
    now_ms = front.now_ms()
    times_ms = [
        *times_of(begin if offsets is None else None, now_ms=now_ms, field="from"),
        *times_of(until, now_ms=now_ms, field="until"),
    ]
    bounds = await front.broker.look(topic, chosen, times_ms=times_ms)
    is_committed_only = _is_committed_only(query)
    at = partial(offset_at, now_ms=now_ms, is_committed_only=is_committed_only)
    return [
        Place(
            topic.partition(number),
            at(one, begin, field="from") if offsets is None else _checked(one, offsets[number]),
            None if until in (None, LATEST) else at(one, until, field="until"),
        )
        for number, one in zip(chosen, bounds, strict=True)
    ]


def _named_offsets(topic: Topic, query: Read | Stream, *, most: int) -> dict[int, int] | None:
    """The offsets by partition that a query names, if it does."""
    if query.cursor is not None:
        if query.partition is not None or query.offset is not None or query.from_ is not None:
            raise InvalidField("A cursor names all places; send nothing beside it.", field="cursor")
        return _at_cursor(topic, query.cursor, most=most)
    if query.offset is None:
        return None
    if query.partition is None:
        raise InvalidField("An offset is one of a partition; name it too.", field="partition")
    if query.from_ is not None:
        raise InvalidField("Give an offset or a moment, not both.", field="from")
    return {query.partition: query.offset}


def _is_committed_only(query: Read | ReadOne | Stream) -> bool:
    return query.isolation == "committed"


def _at_cursor(topic: Topic, cursor: str, *, most: int) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for pair in cursor.split(","):
        number, colon, offset = pair.partition(":")
        if not (colon and _is_number(number) and _is_number(offset)):
            raise InvalidField(f"{pair[:60]!r} is not partition:offset.", field="cursor")
        if int(number) in offsets:
            raise InvalidField(f"Partition {int(number)} stands twice.", field="cursor")
        topic.partition(int(number))  # or there is no such partition
        offsets[int(number)] = int(offset)
        _check_count(len(offsets), most=most)
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _checked(bounds: Bounds, offset: int) -> int:
    """Refuse an offset that is not there yet, or no more, before anything is sent."""
    if not bounds.start_offset <= offset <= bounds.end_offset:
        raise OffsetOutOfRange(
            bounds.name, offset, start=bounds.start_offset, end=bounds.high_watermark
        )
    return offset


def _check_count(count: int, *, most: int) -> None:
    if count > most:
        raise InvalidField(
            f"At most {most} partitions can be read together; name one.", field="partition"
        )
