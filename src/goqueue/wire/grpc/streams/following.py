"""Follow: messages of a topic without a group, and those that arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.records import LATEST
from goqueue.broker.gate.views import RecordStream
from goqueue.model.errors import GoQueueError
from goqueue.wire.grpc.calls import decoded, value_of
from goqueue.wire.grpc.handlers.consuming import (
    cursor_of,
    is_committed_only,
    spans_of,
    stored_messages,
    unreadable_of,
)
from goqueue.wire.grpc.handlers.paging import messages_max_of
from goqueue.wire.grpc.messages import consume_service_pb2 as bodies
from goqueue.wire.grpc.streams.patience import Patience

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd
    from goqueue.wire.grpc.routes import Wire

WAIT_MS = 20_000


async def follow(front: FrontEnd, call: Call, wire: Wire) -> None:
    data = await wire.read()
    if data is None:
        return
    request = decoded(bodies.FollowRequest, data)
    records_max = messages_max_of(request.messages_max)
    topic = front.gate.topics.get(call.session, topic=request.topic).name
    followed = await value_of(
        front.gate.records.follow(
            call.session,
            topic=topic,
            spans=spans_of(front, call, request, LATEST),
            is_committed_only=is_committed_only(request.isolation),
        )
    )
    try:
        await _send_pages(front, call, wire, followed, records_max)
    finally:
        followed.close()


async def _send_pages(
    front: FrontEnd, call: Call, wire: Wire, followed: RecordStream, records_max: int
) -> None:
    patience = Patience()
    while True:
        try:
            page = await value_of(
                followed.next(
                    records_max=records_max,
                    bytes_max=front.limits.page_bytes_max,
                    wait_ms=WAIT_MS,
                )
            )
        except GoQueueError as error:
            await patience.wait(error)
            continue
        patience.reset()
        if not page.records and not page.damaged:
            continue
        response = bodies.FollowResponse(
            messages=stored_messages(page),
            cursor=cursor_of(page.places),
            unreadable=unreadable_of(page),
        )
        sent = response.SerializeToString()
        front.unread.add(call, len(sent))
        await wire.write(sent)
        front.unread.sent(call, len(sent))
