"""Reading by offset and by time, of one message, and as a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.records import At, Position, RecordFilter, Span
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies.messages import (
    Damage,
    Found,
    Message,
    Messages,
    Read,
    ReadOne,
    Search,
    Stream,
)
from goqueue.wire.http.events import EventStream
from goqueue.wire.http.fields import INT32_MAX, INT64_MAX, Encoding
from goqueue.wire.http.messages import to_message
from goqueue.wire.http.moments import EARLIEST, LATEST, position_of

if TYPE_CHECKING:
    from goqueue.broker.gate.views import PageView, PlaceView, RecordStream, TopicView
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

PARTITIONS_PER_READ_MAX = 1000
PARTITIONS_PER_STREAM_MAX = 100  # every event contains the offsets of all of them


async def read(front: FrontEnd, call: Call, query: Read) -> Messages:
    topic = front.gate.topics.get(call.session, topic=call.text("topic"))
    page = await front.gate.records.read(
        call.session,
        topic=topic.name,
        spans=_spans(
            front, topic, query, query.from_ or EARLIEST, query.until, most=PARTITIONS_PER_READ_MAX
        ),
        records_max=query.limit,
        bytes_max=front.limits.answer_bytes_max,
        wait_ms=query.wait_ms,
        is_committed_only=_is_committed_only(query),
        cancellation=call.cancellation,
    )
    return Messages(
        messages=messages_of(page, query.encoding),
        cursor=cursor_of(page.places),
        damaged=damages_of(page),
    )


async def search(front: FrontEnd, call: Call, query: Search) -> Found:
    topic = front.gate.topics.get(call.session, topic=call.text("topic"))
    page = await front.gate.records.search(
        call.session,
        topic=topic.name,
        spans=_spans(
            front, topic, query, query.from_ or EARLIEST, query.until, most=PARTITIONS_PER_READ_MAX
        ),
        wanted=RecordFilter(
            _encoded(query.key),
            query.trace_id,
            query.header,
            _encoded(query.header_value),
            _encoded(query.text),
        ),
        limit=query.limit,
        cancellation=call.cancellation,
    )
    return Found(
        messages=[
            to_message(topic.name, number, record, query.encoding)
            for number, record in page.records
        ],
        cursor=",".join(f"{number}:{offset}" for number, offset in page.places),
        read_bytes=page.read_bytes,
        skipped_bytes=page.skipped_bytes,
    )


async def read_one(front: FrontEnd, call: Call, query: ReadOne) -> Message:
    topic = front.gate.topics.get(call.session, topic=call.text("topic")).name
    number = call.number("partition", most=INT32_MAX)
    record = await front.gate.records.read_one(
        call.session,
        topic=topic,
        partition=number,
        offset=call.number("offset", most=INT64_MAX),
        bytes_max=front.limits.answer_bytes_max,
        is_committed_only=_is_committed_only(query),
    )
    return to_message(topic, number, record, query.encoding)


async def stream(
    front: FrontEnd,
    call: Call,
    query: Stream,
    make: Callable[[RecordStream, str], EventStream] | None = None,
) -> EventStream:
    """Follow a topic, as a plain stream of events or as another one."""
    topic = front.gate.topics.get(call.session, topic=call.text("topic"))
    if call.last_event_id:
        query.cursor = call.last_event_id
        query.partition = query.offset = query.from_ = None
    followed = await front.gate.records.follow(
        call.session,
        topic=topic.name,
        spans=_spans(
            front, topic, query, query.from_ or LATEST, None, most=PARTITIONS_PER_STREAM_MAX
        ),
        is_committed_only=_is_committed_only(query),
    )
    if make is not None:
        return make(followed, topic.name)
    return EventStream(followed, topic.name, query.encoding)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def messages_of(page: PageView, encoding: Encoding) -> list[Message]:
    return [
        to_message(partition.name.topic, partition.name.partition, record, encoding)
        for partition, record in page.records
    ]


def damages_of(page: PageView) -> list[Damage]:
    return [
        Damage(
            partition=one.partition.name.partition,
            offset=one.offset,
            next_offset=one.next_offset,
            detail=str(one.error),
        )
        for one in page.damaged
    ]


def cursor_of(places: Sequence[PlaceView]) -> str:
    return ",".join(f"{place.partition.name.partition}:{place.offset}" for place in places)


def _spans(
    front: FrontEnd,
    topic: TopicView,
    query: Read | Stream | Search,
    begin: str,
    until: str | None,
    *,
    most: int,
) -> list[Span]:
    """What to read: from a cursor, an offset, or a time in one or all partitions."""
    offsets = _named_offsets(query, most=most)
    now_ms = front.now_ms()
    end = None if until is None else position_of(until, now_ms=now_ms, field="until")
    if offsets is not None:
        return [
            Span(number, Position(At.OFFSET, offset), end) for number, offset in offsets.items()
        ]
    chosen = range(topic.partition_count) if query.partition is None else [query.partition]
    check_count(len(chosen), most=most)
    first = position_of(begin, now_ms=now_ms, field="from")
    return [Span(number, first, end) for number in chosen]


def _named_offsets(query: Read | Stream | Search, *, most: int) -> dict[int, int] | None:
    """The offsets by partition in a query, if it has any."""
    if query.cursor is not None:
        offset = None if isinstance(query, Search) else query.offset
        if query.partition is not None or offset is not None or query.from_ is not None:
            raise InvalidField("A cursor cannot be combined with other positions.", field="cursor")
        return at_cursor(query.cursor, most=most)
    if isinstance(query, Search) or query.offset is None:
        return None
    if query.partition is None:
        raise InvalidField("An offset needs a partition; give it too.", field="partition")
    if query.from_ is not None:
        raise InvalidField("Give either an offset or a time.", field="from")
    return {query.partition: query.offset}


def _is_committed_only(query: Read | ReadOne | Stream) -> bool:
    return query.isolation == "committed"


def at_cursor(cursor: str, *, most: int) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for pair in cursor.split(","):
        number, colon, offset = pair.partition(":")
        if not (colon and _is_number(number) and _is_number(offset)):
            raise InvalidField(f"{pair[:60]!r} is not partition:offset.", field="cursor")
        if int(number) in offsets:
            raise InvalidField(f"Partition {int(number)} is given twice.", field="cursor")
        offsets[int(number)] = int(offset)
        check_count(len(offsets), most=most)
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def check_count(count: int, *, most: int) -> None:
    if count > most:
        raise InvalidField(
            f"At most {most} partitions can be read together; give one.", field="partition"
        )
