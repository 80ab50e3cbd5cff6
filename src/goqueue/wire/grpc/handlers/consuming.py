"""ConsumeService: pull messages of a queue group, read a page without a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.records import EARLIEST, LATEST, At, Position, Span
from goqueue.broker.gate.views import PageView, PlaceView
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.handlers.fields import group_of, receipts_of, visibility_of
from goqueue.wire.grpc.handlers.paging import messages_max_of
from goqueue.wire.grpc.handlers.settling import errors_of
from goqueue.wire.grpc.messages import consume_service_pb2 as bodies
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.records import received_messages, to_stored

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

PARTITIONS_MAX = 1000  # read together
PULLED_DEFAULT = 10
READ_DEFAULT = 100


async def pull(front: FrontEnd, call: Call, request: bodies.PullRequest) -> bodies.PullResponse:
    group, visibility_ms = group_of(request.group), visibility_of(request)
    messages_max = messages_max_of(request.messages_max, PULLED_DEFAULT)
    wait_ms, consumer = call.wait_ms(request.wait_ms), request.consumer or call.host
    if not request.ack:
        received = await front.gate.queues.receive(
            call.session,
            group=group,
            topic=request.topic,
            consumer=consumer,
            messages_max=messages_max,
            wait_ms=wait_ms,
            visibility_ms=visibility_ms,
            cancellation=call.cancellation,
        )
        return bodies.PullResponse(messages=received_messages(received))
    receipts = receipts_of(request.ack, "ack")
    outcomes, received = await front.gate.queues.ack_and_receive(
        call.session,
        group=group,
        topic=request.topic,
        receipts=receipts,
        consumer=consumer,
        messages_max=messages_max,
        wait_ms=wait_ms,
        visibility_ms=visibility_ms,
        cancellation=call.cancellation,
    )
    return bodies.PullResponse(
        messages=received_messages(received), errors=errors_of(receipts, outcomes)
    )


async def read(front: FrontEnd, call: Call, request: bodies.ReadRequest) -> bodies.ReadResponse:
    topic = front.gate.topics.get(call.session, topic=request.topic).name
    page = await front.gate.records.read(
        call.session,
        topic=topic,
        spans=spans_of(front, call, request, EARLIEST),
        records_max=messages_max_of(request.messages_max, READ_DEFAULT),
        bytes_max=front.limits.page_bytes_max,
        wait_ms=call.wait_ms(request.wait_ms),
        is_committed_only=is_committed_only(request.isolation),
        cancellation=call.cancellation,
    )
    return bodies.ReadResponse(
        messages=stored_messages(page),
        cursor=cursor_of(page.places),
        unreadable=unreadable_of(page),
    )


def spans_of(
    front: FrontEnd,
    call: Call,
    request: bodies.ReadRequest | bodies.FollowRequest,
    default: Position,
) -> list[Span]:
    """Return what to read: from a cursor, or from a position in one or all partitions."""
    # `from` is a word of Python, so the field has no attribute of its own.
    begin = position_of(getattr(request, "from"), default, "from")
    if request.cursor:
        if begin is not default or request.HasField("partition"):
            raise InvalidField("A cursor cannot be combined with other positions.", field="cursor")
        named = {one.partition: one.offset for one in request.cursor}
        if len(named) != len(request.cursor):
            raise InvalidField("A partition is given twice.", field="cursor")
        _check_count(len(named))
        return [Span(number, Position(At.OFFSET, offset)) for number, offset in named.items()]
    if request.HasField("partition"):
        return [Span(request.partition, begin)]
    if begin.at is At.OFFSET:
        raise InvalidField("An offset needs a partition; give it too.", field="partition")
    count = front.gate.topics.get(call.session, topic=request.topic).partition_count
    _check_count(count)
    return [Span(number, begin) for number in range(count)]


def position_of(asked: bodies.Position, default: Position, field: str) -> Position:
    """Return the position in that field of a request; `default` if it has none."""
    kind = asked.WhichOneof("position")
    if kind == "time_ms":
        return Position(At.TIME, asked.time_ms)
    if kind == "offset":
        if asked.offset < 0:
            raise InvalidField(f"There is no offset {asked.offset}.", field=f"{field}.offset")
        return Position(At.OFFSET, asked.offset)
    if kind == "start" and asked.start != bodies.START_UNSPECIFIED:
        return LATEST if asked.start == bodies.START_LATEST else EARLIEST
    return default


def is_committed_only(isolation: int) -> bool:
    return isolation != shared.ISOLATION_UNCOMMITTED


def stored_messages(page: PageView) -> list[shared.StoredMessage]:
    return [
        to_stored(partition.name.topic, partition.name.partition, record)
        for partition, record in page.records
    ]


def cursor_of(places: Sequence[PlaceView]) -> list[shared.PartitionOffset]:
    return [
        shared.PartitionOffset(partition=one.partition.name.partition, offset=one.offset)
        for one in places
    ]


def unreadable_of(page: PageView) -> list[shared.UnreadableRange]:
    return [
        shared.UnreadableRange(
            topic=one.partition.name.topic,
            partition=one.partition.name.partition,
            offset=one.offset,
            next_offset=one.next_offset,
            detail=str(one.error),
        )
        for one in page.damaged
    ]


def _check_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise InvalidField(
            f"At most {PARTITIONS_MAX} partitions can be read together; give one.",
            field="partition",
        )
