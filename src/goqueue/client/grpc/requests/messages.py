"""Publishing, and reading by offset and by time."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.client.grpc.messages import (
    acks_of,
    cursor_of,
    cursor_text,
    damage_of,
    joined,
    message_of,
    outcomes_of,
    outgoing,
    position_of,
)
from goqueue.client.grpc.request import NotInGrpc, call
from goqueue.client.http.messages import (
    NO_HEADERS,
    Acks,
    Data,
    Headers,
    Message,
    Outgoing,
    Published,
)
from goqueue.client.http.moments import Duration, Moment, Position, duration_ms
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.requests import messages as http
from goqueue.client.http.requests.messages import Outcome, Page
from goqueue.model.errors import GoQueueError, InvalidRequest, UnknownMessage
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import messages_pb2 as wire
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from goqueue.wire.http.fields import Isolation, Priority

_ISOLATIONS = {
    "committed": wire.ISOLATION_COMMITTED,
    "uncommitted": wire.ISOLATION_UNCOMMITTED,
}


class MessageRequests(http.MessageRequests):
    def publish(
        self,
        topic: str,
        value: Data | None,
        *,
        key: Data | None = None,
        headers: Headers = NO_HEADERS,
        priority: Priority | None = None,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
        ttl: Duration | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        acks: Acks = "all",
    ) -> Request[Published]:
        message = Outgoing(
            value, key, headers, priority, delay, deliver_at, ttl, partition, timestamp_ms
        )
        request = publishing.PublishRequest(
            topic=topic, messages=[outgoing(message)], acks=acks_of(acks)
        )

        def read(response: publishing.PublishResponse) -> Published:
            (outcome,) = outcomes_of([topic], response.report)
            if isinstance(outcome, GoQueueError):
                raise outcome
            return outcome

        return call(
            "PublishService/Publish",
            request,
            publishing.PublishResponse,
            read,
            repeat=Repeat.PUBLISHES,
        )

    def encoded(self, message: Outgoing) -> bytes:
        return outgoing(message).SerializeToString()

    def publish_encoded(
        self, topic: str, parts: Sequence[bytes], *, acks: Acks = "all"
    ) -> Request[list[Outcome]]:
        head = publishing.PublishRequest(topic=topic, acks=acks_of(acks))
        made = call(
            "PublishService/Publish",
            head,
            publishing.PublishResponse,
            lambda response: outcomes_of([topic] * len(parts), response.report),
            repeat=Repeat.PUBLISHES,
        )
        return Request(
            made.method, made.path, made.read, body=joined(head, parts), repeat=made.repeat
        )

    def read_page(
        self,
        topic: str,
        *,
        partition: int | None = None,
        offset: int | None = None,
        from_: Position | None = None,
        until: Position | None = None,
        cursor: str | None = None,
        limit: int = 100,
        wait: Duration = 0,
        isolation: Isolation = "committed",
    ) -> Request[Page]:
        if until is not None:
            raise NotInGrpc("Reading until a position")
        if offset is not None and from_ is not None:
            raise InvalidRequest("Start at an offset or at a position, not both.")
        start = from_ if offset is None else f"offset:{offset}"
        wait_ms = duration_ms(wait)
        request = consuming.ReadRequest(
            topic=topic,
            partition=partition,
            cursor=cursor_of(cursor or ""),
            messages_max=limit,
            wait_ms=wait_ms,
            isolation=_ISOLATIONS[isolation],
        )
        if start is not None:
            # `from` is a word of Python.
            getattr(request, "from").CopyFrom(position_of(start))
        return call("ConsumeService/Read", request, consuming.ReadResponse, _page, wait_ms=wait_ms)

    def read_one(
        self, topic: str, *, partition: int, offset: int, isolation: Isolation = "committed"
    ) -> Request[Message]:
        page = self.read_page(
            topic, partition=partition, offset=offset, limit=1, isolation=isolation
        )

        def read(data: bytes) -> Message:
            found = page.read(data).messages
            if not found or found[0].offset != offset:
                raise UnknownMessage.with_text(
                    f"There is no message at offset {offset} of {topic}/{partition}."
                )
            return found[0]

        return Request(page.method, page.path, read, body=page.body)


def _page(response: consuming.ReadResponse) -> Page:
    return Page(
        messages=tuple(map(message_of, response.messages)),
        cursor=cursor_text(response.cursor),
        damaged=tuple(map(damage_of, response.unreadable)),
    )
