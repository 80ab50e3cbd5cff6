"""Queue groups: receive, settle and inspect the messages of a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from goqueue.client.grpc.messages import (
    message_of,
    position_of,
    priority_name,
    receipt_outcomes,
    received_of,
)
from goqueue.client.grpc.request import NotInGrpc, call
from goqueue.client.http.group_results import PeekedMessage
from goqueue.client.http.messages import ReceivedMessage
from goqueue.client.http.moments import Duration, Position, duration_ms
from goqueue.client.http.request import Request
from goqueue.client.http.requests import queues as http
from goqueue.client.http.requests.queues import Outcomes, Receipt
from goqueue.model.errors import InvalidRequest
from goqueue.wire.grpc.messages import ack_service_pb2 as settling
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import group_service_pb2 as groups
from goqueue.wire.grpc.messages import messages_pb2 as wire

T = TypeVar("T")


class QueueRequests(http.QueueRequests):
    # Receiving and settling

    def receive(
        self,
        max_messages: int = 10,
        *,
        wait: Duration = 0,
        visibility: Duration | None = None,
        bodies: bool = True,
    ) -> Request[list[ReceivedMessage]]:
        if not bodies:
            raise NotInGrpc("Receiving without bodies")
        wait_ms = duration_ms(wait)
        request = consuming.PullRequest(
            group=self.group,
            topic=self.topic,
            consumer=self.consumer or "",
            messages_max=max_messages,
            wait_ms=wait_ms,
            visibility_ms=_ms(visibility),
        )
        return call(
            "ConsumeService/Pull",
            request,
            consuming.PullResponse,
            lambda response: [received_of(self.group, one) for one in response.messages],
            wait_ms=wait_ms,
        )

    def ack(self, message: Receipt) -> Request[None]:
        return _only(self.ack_many([message]))

    def nack(self, message: Receipt, *, delay: Duration | None = None) -> Request[None]:
        return _only(self.nack_many([message], delay=delay))

    def reject(self, message: Receipt, *, reason: str = "rejected") -> Request[None]:
        return _only(self.reject_many([message], reason=reason))

    def extend(self, message: Receipt, *, visibility: Duration | None = None) -> Request[None]:
        return _only(self.extend_many([message], visibility=visibility))

    def ack_many(self, messages: Iterable[Receipt]) -> Request[Outcomes]:
        request = settling.AckRequest(group=self.group, receipts=_receipts(messages))
        return _settled("Ack", request, settling.AckResponse)

    def nack_many(
        self, messages: Iterable[Receipt], *, delay: Duration | None = None
    ) -> Request[Outcomes]:
        request = settling.NackRequest(
            group=self.group, receipts=_receipts(messages), delay_ms=_ms(delay)
        )
        return _settled("Nack", request, settling.NackResponse)

    def reject_many(
        self, messages: Iterable[Receipt], *, reason: str = "rejected"
    ) -> Request[Outcomes]:
        request = settling.RejectRequest(
            group=self.group, receipts=_receipts(messages), reason=reason
        )
        return _settled("Reject", request, settling.RejectResponse)

    def extend_many(
        self, messages: Iterable[Receipt], *, visibility: Duration | None = None
    ) -> Request[Outcomes]:
        request = settling.ExtendRequest(
            group=self.group, receipts=_receipts(messages), visibility_ms=_ms(visibility)
        )
        return _settled("Extend", request, settling.ExtendResponse)

    # Inspecting and moving

    def peek(
        self, *, partition: int | None = None, offset: int | None = None, limit: int = 10
    ) -> Request[list[PeekedMessage]]:
        request = groups.PeekRequest(
            group=self.group,
            topic=self.topic,
            partition=partition,
            offset=offset,
            messages_max=limit,
        )
        return call(
            "GroupService/Peek",
            request,
            groups.PeekResponse,
            lambda response: [_peeked(one) for one in response.messages],
        )

    def rewind(
        self, to: Position | None = None, *, offsets: Mapping[int, int] | None = None
    ) -> Request[dict[int, int]]:
        if (to is None) == (offsets is None):
            raise InvalidRequest("Rewind to a time or to offsets, not both.")
        request = groups.RewindRequest(
            group=self.group,
            topic=self.topic,
            to=None if to is None else position_of(to),
            offsets=[
                wire.PartitionOffset(partition=number, offset=one)
                for number, one in (offsets or {}).items()
            ],
        )
        return call("GroupService/Rewind", request, groups.RewindResponse, _moved)

    def purge(self) -> Request[dict[int, int]]:
        request = groups.PurgeRequest(group=self.group, topic=self.topic)
        return call("GroupService/Purge", request, groups.PurgeResponse, _moved)


def _settled(method: str, request: Any, answer: type[Any]) -> Request[Outcomes]:
    receipts = list(request.receipts)
    return call(
        f"AckService/{method}",
        request,
        answer,
        lambda response: receipt_outcomes(receipts, response.errors),
    )


def _only(request: Request[Outcomes]) -> Request[None]:
    def read(data: bytes) -> None:
        for error in request.read(data):
            if error is not None:
                raise error

    return Request(request.method, request.path, read, body=request.body)


def _receipts(messages: Iterable[Receipt]) -> list[str]:
    return [one if isinstance(one, str) else one.receipt for one in messages]


def _ms(duration: Duration | None) -> int | None:
    return None if duration is None else duration_ms(duration)


def _peeked(one: groups.PeekedMessage) -> PeekedMessage:
    stored = message_of(one.message)
    return PeekedMessage(
        id=stored.id,
        topic=stored.topic,
        partition=stored.partition,
        offset=stored.offset,
        timestamp_ms=stored.timestamp_ms,
        key=stored.key,
        value=stored.value,
        headers=stored.headers,
        priority=priority_name(one.priority),
        state=one.state,
        attempts=one.attempts,
        consumer=one.consumer or None,
        lease_until_ms=one.leased_until_ms if one.HasField("leased_until_ms") else None,
        due_at_ms=one.due_at_ms if one.HasField("due_at_ms") else None,
    )


def _moved(response: groups.RewindResponse | groups.PurgeResponse) -> dict[int, int]:
    return {one.partition: one.offset for one in response.positions}
