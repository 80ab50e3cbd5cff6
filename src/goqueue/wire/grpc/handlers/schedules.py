"""ScheduleService: list, count, show, move, cancel scheduled messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.schedules import NEVER_MS
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.handlers.paging import page_size_of
from goqueue.wire.grpc.messages import schedule_service_pb2 as bodies
from goqueue.wire.grpc.records import to_headers
from goqueue.wire.grpc.statuses import error_of

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

PAGE_SIZE_DEFAULT = 100
CANCELS_MAX = 1000
ID_LENGTH_MAX = 100


async def list_all(
    front: FrontEnd, call: Call, request: bodies.ListSchedulesRequest
) -> bodies.ListSchedulesResponse:
    from_ms, until_ms = _stretch(request)
    page = await front.gate.schedules.list(
        call.session,
        topic=request.topic or None,
        from_ms=from_ms,
        until_ms=until_ms,
        limit=page_size_of(request.page_size, PAGE_SIZE_DEFAULT),
        after=request.page_token,
    )
    return bodies.ListSchedulesResponse(
        schedules=[
            bodies.Schedule(id=one.id, topic=one.topic, deliver_at_ms=one.due_ms)
            for one in page.entries
        ],
        next_page_token=page.next_cursor,
    )


async def count(
    front: FrontEnd, call: Call, request: bodies.CountSchedulesRequest
) -> bodies.CountSchedulesResponse:
    from_ms, until_ms = _stretch(request)
    counted = await front.gate.schedules.count(
        call.session, topic=request.topic or None, from_ms=from_ms, until_ms=until_ms
    )
    return bodies.CountSchedulesResponse(count=counted)


async def get(
    front: FrontEnd, call: Call, request: bodies.GetScheduleRequest
) -> bodies.GetScheduleResponse:
    found = await front.gate.schedules.show(call.session, schedule_id=_id(request.id))
    return bodies.GetScheduleResponse(
        schedule=bodies.Schedule(id=found.id, topic=found.topic, deliver_at_ms=found.due_ms),
        partition=found.partition,
        timestamp_ms=found.timestamp_ms,
        key=found.key,
        value=found.value,
        headers=to_headers(found.headers),
    )


async def move(
    front: FrontEnd, call: Call, request: bodies.MoveScheduleRequest
) -> bodies.MoveScheduleResponse:
    kind = request.WhichOneof("to")
    if kind is None:
        raise InvalidField("Give either delay_ms or deliver_at_ms.", field="to")
    is_delay = kind == "delay_ms"
    due_ms = front.now_ms() + request.delay_ms if is_delay else request.deliver_at_ms
    if due_ms < 0 or (is_delay and request.delay_ms < 0) or due_ms >= NEVER_MS:
        raise InvalidField("This is not a time in the next hundred years.", field=kind)
    await front.gate.schedules.move(call.session, schedule_id=_id(request.id), due_ms=due_ms)
    return bodies.MoveScheduleResponse(deliver_at_ms=due_ms)


async def cancel(
    front: FrontEnd, call: Call, request: bodies.CancelSchedulesRequest
) -> bodies.CancelSchedulesResponse:
    ids = [_id(one, "ids") for one in request.ids]
    if not 1 <= len(ids) <= CANCELS_MAX:
        raise InvalidField(f"Give 1 to {CANCELS_MAX} ids.", field="ids")
    outcomes = await front.gate.schedules.cancel_many(call.session, schedule_ids=ids)
    return bodies.CancelSchedulesResponse(
        errors=[
            bodies.ScheduleError(id=one, error=error_of(error))
            for one, error in zip(ids, outcomes, strict=True)
            if error is not None
        ]
    )


def _id(text: str, field: str = "id") -> str:
    if not 1 <= len(text) <= ID_LENGTH_MAX:
        raise InvalidField("This is no id of a schedule.", field=field)
    return text


def _stretch(
    request: bodies.ListSchedulesRequest | bodies.CountSchedulesRequest,
) -> tuple[int, int]:
    from_ms = request.from_ms if request.HasField("from_ms") else 0
    return from_ms, request.until_ms if request.HasField("until_ms") else NEVER_MS
