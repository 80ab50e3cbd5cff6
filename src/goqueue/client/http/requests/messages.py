"""Publishing, and reading by offset and by time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from goqueue.client.http.failures import error_of_problem
from goqueue.client.http.messages import (
    NO_HEADERS,
    Acks,
    Data,
    Headers,
    Message,
    Outgoing,
    Published,
    batch_body,
    encoded,
    message_of,
    publish_body,
    published_of,
)
from goqueue.client.http.moments import Duration, Moment, Position, duration_ms, position_text
from goqueue.client.http.request import Repeat, Request, path_of, query_of, reading
from goqueue.model.errors import GoQueueError
from goqueue.wire.http.bodies import messages as bodies
from goqueue.wire.http.bodies.messages import Damage
from goqueue.wire.http.fields import Isolation, Priority

Outcome: TypeAlias = Published | GoQueueError

_read_published = reading(bodies.Published)
_read_results = reading(bodies.PublishedMany)
_read_messages = reading(bodies.Messages)
_read_message = reading(bodies.Message)
_read_found = reading(bodies.Found)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages, the position of the next page, and the records that could not be read."""

    messages: tuple[Message, ...]
    cursor: str
    damaged: tuple[Damage, ...] = ()


class FoundPage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that were found, and where the search goes on; the cursor is empty at its end."""

    messages: tuple[Message, ...]
    cursor: str
    read_bytes: int
    skipped_bytes: int


class MessageRequests:
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
        """Publish one message; the response is sent when it is as durable as `acks` requires.

        If the response is lost, the message may or may not be stored: `ConnectionLost` or
        `RequestTimedOut` says so, and the request is not repeated unless the client's settings
        accept that a message may be stored twice (`repeats_publishes`).
        """
        message = Outgoing(
            value, key, headers, priority, delay, deliver_at, ttl, partition, timestamp_ms
        )
        return Request(
            "POST",
            path_of("topics", topic, "publish"),
            _published,
            body=publish_body(message, acks),
            repeat=Repeat.PUBLISHES,
        )

    def encoded(self, message: Outgoing) -> bytes:
        """Encode a message for `publish_encoded`, so that its size is known early."""
        return encoded(message)

    def publish_encoded(
        self, topic: str, parts: Sequence[bytes], *, acks: Acks = "all"
    ) -> Request[list[Outcome]]:
        """Publish messages encoded by `encoded`; return an outcome for each."""
        return Request(
            "POST",
            path_of("topics", topic, "batch"),
            read_outcomes,
            body=batch_body(parts, acks),
            repeat=Repeat.PUBLISHES,
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
        """Read up to `limit` messages, waiting for the first if there is none.

        The isolation `uncommitted` includes those of open and aborted transactions.
        """
        query = bodies.Read(
            partition=partition,
            offset=offset,
            from_=None if from_ is None else position_text(from_),
            until=None if until is None else position_text(until),
            cursor=cursor,
            limit=limit,
            wait_ms=duration_ms(wait),
            isolation=isolation,
        )
        path = path_of("topics", topic, "messages")
        return Request("GET", path, _page, _isolated(query), wait_ms=query.wait_ms)

    def search_page(
        self,
        topic: str,
        *,
        key: str | None = None,
        trace_id: str | None = None,
        header: str | None = None,
        header_value: str | None = None,
        text: str | None = None,
        partition: int | None = None,
        from_: Position | None = None,
        until: Position | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Request[FoundPage]:
        """Find messages for which all conditions hold; the oldest first.

        A page may be empty before the end; the last one has an empty cursor.
        """
        query = bodies.Search(
            key=key,
            trace_id=trace_id,
            header=header,
            header_value=header_value,
            text=text,
            partition=partition,
            from_=None if from_ is None else position_text(from_),
            until=None if until is None else position_text(until),
            cursor=cursor,
            limit=limit,
        )
        return Request("GET", path_of("topics", topic, "search"), _found, query_of(query))

    def read_one(
        self, topic: str, *, partition: int, offset: int, isolation: Isolation = "committed"
    ) -> Request[Message]:
        """Return the message at an offset of a partition."""
        path = path_of("topics", topic, "messages", partition, offset)
        query = bodies.ReadOne(isolation=isolation)
        return Request("GET", path, _message, {} if isolation == "committed" else query_of(query))


def _isolated(query: bodies.Read) -> dict[str, str]:
    """The fields of a query; the isolation is left out if it is the broker's default."""
    fields = query_of(query)
    if query.isolation == "committed":
        del fields["isolation"]
    return fields


def _found(data: bytes) -> FoundPage:
    found = _read_found(data)
    return FoundPage(
        messages=tuple(map(message_of, found.messages)),
        cursor=found.cursor,
        read_bytes=found.read_bytes,
        skipped_bytes=found.skipped_bytes,
    )


def _published(data: bytes) -> Published:
    return published_of(_read_published(data))


def read_outcomes(data: bytes) -> list[Outcome]:
    return [_outcome(one) for one in _read_results(data).results]


def _outcome(result: bodies.PublishResult) -> Outcome:
    if isinstance(result.published, bodies.Published):
        return published_of(result.published)
    assert not isinstance(result.problem, msgspec.UnsetType), "a result is one or the other"
    return error_of_problem(result.problem)


def _page(data: bytes) -> Page:
    answer = _read_messages(data)
    return Page(
        messages=tuple(map(message_of, answer.messages)),
        cursor=answer.cursor,
        damaged=tuple(answer.damaged),
    )


def _message(data: bytes) -> Message:
    return message_of(_read_message(data))
