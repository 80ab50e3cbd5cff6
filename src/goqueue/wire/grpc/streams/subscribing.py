"""Subscribe: a member of a stream group, for as long as the stream lasts.

The stream polls for its client, so a client that does not read its stream sends no heartbeats
either, and loses its partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from goqueue.broker.gate.areas.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
)
from goqueue.broker.gate.areas.polling import Poll, Polled
from goqueue.loop.promise import Promise
from goqueue.model.errors import FencedMemberEpoch, GoQueueError, UnknownMember
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.calls import decoded, value_of
from goqueue.wire.grpc.handlers.fields import group_of
from goqueue.wire.grpc.handlers.groups import topic_partitions
from goqueue.wire.grpc.handlers.paging import messages_max_of
from goqueue.wire.grpc.messages import consume_service_pb2 as bodies
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.records import to_stored
from goqueue.wire.grpc.streams.patience import Patience

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd
    from goqueue.wire.grpc.routes import Wire

TOPICS_MAX = 1000
NAME_LENGTH_MAX = 255
PATTERN_LENGTH_MAX = 1024
WAIT_MS = 20_000  # limited to the heartbeat interval of the group
REBALANCE_TIMEOUT_MS = 60_000
CLIENT_ID = "grpc"


async def subscribe(front: FrontEnd, call: Call, wire: Wire) -> None:
    data = await wire.read()
    if data is None:
        return
    member = _Member(front, call, decoded(bodies.SubscribeRequest, data))
    try:
        await wire.write(await member.join())
        while True:
            response = await member.poll()
            if response is not None:
                front.unread.add(call, len(response))
                await wire.write(response)
                front.unread.sent(call, len(response))
    finally:
        member.leave()


class _Member:
    """A member whose partitions this stream reads."""

    def __init__(self, front: FrontEnd, call: Call, request: bodies.SubscribeRequest) -> None:
        _check(request)
        self._front = front
        self._call = call
        self._request = request
        self._group = group_of(request.group)
        self._instance_id = request.instance_id or None
        self._records_max = messages_max_of(request.messages_max)
        is_latest = request.start == bodies.START_LATEST
        self._start: Literal["earliest", "latest"] = "latest" if is_latest else "earliest"
        self._member_id = request.member_id
        self._epoch = 0
        self._after: int | None = None
        self._patience = Patience()

    async def join(self) -> bytes:
        """Become a member; return the first response of the stream."""
        request = self._request
        joining = self._heartbeat(JOIN_EPOCH)
        joining = msgspec.structs.replace(
            joining,
            client_id=CLIENT_ID,
            client_host=self._call.host,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topics=tuple(request.topics),
            subscribed_regex=request.topic_pattern or None,
            server_assignor=request.assignor or None,
            owned=frozenset(),
        )
        polling = self._front.gate.polling
        result: ConsumerHeartbeatResult = await value_of(
            polling.join(self._call.session, call=joining)
        )
        self._member_id, self._epoch, self._after = result.member_id, result.member_epoch, None
        assigned = result.assignment
        response = bodies.SubscribeResponse(
            member_id=self._member_id,
            member_epoch=self._epoch,
            is_assigned=assigned is not None,
            assignment=topic_partitions(assigned or ()),
        )
        return response.SerializeToString()

    async def poll(self) -> bytes | None:
        """Return the next messages or the next assignment; None if there is nothing new."""
        before = self._epoch
        try:
            polled: Polled = await value_of(self._poll())
            if polled.assignment is not None:
                await value_of(self._release(polled))
        except (UnknownMember, FencedMemberEpoch):
            # The client did not read for too long, or the coordinator has lost its members.
            return await self.join()
        except GoQueueError as error:
            await self._patience.wait(error)
            return None
        self._patience.reset()
        self._after, self._epoch = polled.number, polled.member_epoch
        is_news = polled.records or polled.resets or polled.damaged
        if not is_news and polled.assignment is None and polled.member_epoch == before:
            return None
        return self._response(polled).SerializeToString()

    def leave(self) -> None:
        """Leave the group, so that others get the partitions at once; a static member returns."""
        if not self._member_id or not self._epoch:
            return
        epoch = LEAVE_EPOCH if self._instance_id is None else STATIC_LEAVE_EPOCH
        left = self._front.gate.polling.leave(self._call.session, call=self._heartbeat(epoch))
        left.then(lambda _, __: None)  # If it fails, the session of the member expires.

    def _poll(self) -> Promise[Polled]:
        return self._front.gate.polling.poll(
            self._call.session,
            call=Poll(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=self._epoch,
                records_max=self._records_max,
                bytes_max=self._front.limits.page_bytes_max,
                start=self._start,
                after=self._after,
            ),
            wait_ms=WAIT_MS,
            cancellation=self._call.cancellation,
        )

    def _release(self, polled: Polled) -> Promise[ConsumerHeartbeatResult]:
        """Confirm a new assignment: nothing more is read from partitions that are not in it."""
        beat = self._heartbeat(polled.member_epoch)
        beat = msgspec.structs.replace(beat, owned=polled.assignment)
        return self._front.gate.polling.heartbeat(self._call.session, call=beat)

    def _heartbeat(self, epoch: int) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
        )

    def _response(self, polled: Polled) -> bodies.SubscribeResponse:
        return bodies.SubscribeResponse(
            member_id=self._member_id,
            member_epoch=polled.member_epoch,
            is_assigned=polled.assignment is not None,
            assignment=topic_partitions(polled.assignment or ()),
            messages=[to_stored(*one) for one in polled.records],
            resets=[
                bodies.PositionReset(
                    topic=one.topic,
                    partition=one.partition,
                    offset_before=one.offset_before,
                    offset=one.offset,
                )
                for one in polled.resets
            ],
            unreadable=[
                shared.UnreadableRange(
                    topic=one.topic,
                    partition=one.partition,
                    offset=one.offset,
                    next_offset=one.next_offset,
                    detail=one.detail,
                )
                for one in polled.damaged
            ],
        )


def _check(request: bodies.SubscribeRequest) -> None:
    if not request.topics and not request.topic_pattern:
        raise InvalidField("Give at least one topic, or a topic_pattern.", field="topics")
    if len(request.topics) > TOPICS_MAX:
        raise InvalidField(f"Give at most {TOPICS_MAX} topics, or a pattern.", field="topics")
    if len(request.topic_pattern) > PATTERN_LENGTH_MAX:
        raise InvalidField("The pattern is too long.", field="topic_pattern")
    if max(len(request.member_id), len(request.instance_id)) > NAME_LENGTH_MAX:
        raise InvalidField(f"Ids have at most {NAME_LENGTH_MAX} characters.", field="member_id")
