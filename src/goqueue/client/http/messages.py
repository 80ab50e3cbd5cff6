"""Messages as callers write and read them: exact bytes on both sides.

On the wire, text and JSON are sent as they are and other bytes as base64, with a field that says
which. That is not visible to callers.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from goqueue.client.http.moments import Duration, Moment, duration_ms, moment_ms
from goqueue.model.errors import InvalidRequest
from goqueue.wire.http.bodies import messages as bodies
from goqueue.wire.http.bodies import transactions as transaction_bodies
from goqueue.wire.http.fields import Encoding, Priority


class Json(msgspec.Struct, frozen=True):
    """A value or a key that is stored as JSON: compact, UTF-8, in the order of its members.

    Integers and Decimals of any size keep their digits. Datetimes are RFC 3339 texts, bytes are
    base64, and dataclasses and structs are objects. A float that is not finite becomes null.
    """

    content: Any


Plain: TypeAlias = bytes | str
Data: TypeAlias = Plain | Json
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Mapping[str, Plain | None] | Iterable[tuple[str, Plain | None]]
Acks: TypeAlias = Literal["all", "leader", "none"]

NO_HEADERS: tuple[Header, ...] = ()


class Outgoing(msgspec.Struct, frozen=True):
    """A message to publish. Text is encoded as UTF-8; `None` as the value is a tombstone.

    `delay` and `ttl` are seconds or timedeltas. `deliver_at` is a datetime with a time zone, or
    milliseconds since 1970.
    """

    value: Data | None
    key: Data | None = None
    headers: Headers = NO_HEADERS
    priority: Priority | None = None
    delay: Duration | None = None
    deliver_at: Moment | None = None
    ttl: Duration | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message was stored, or the id under which a delayed message is scheduled."""

    topic: str
    id: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    schedule_id: str | None = None
    deliver_at_ms: int | None = None

    @property
    def is_scheduled(self) -> bool:
        return self.schedule_id is not None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def text(self) -> str:
        """The value as UTF-8 text; a tombstone is the empty string."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """The value as JSON."""
        return msgspec.json.decode(self.value or b"null")

    def header(self, name: str) -> bytes | None:
        """The last header with that name, or None."""
        return next((value for one, value in reversed(self.headers) if one == name), None)


class ReceivedMessage(Message, frozen=True, kw_only=True):
    """A message leased to this consumer; the receipt proves the lease."""

    receipt: str
    group: str
    priority: str
    attempt: int  # 1 at the first delivery
    lease_until_ms: int

    def __str__(self) -> str:
        return f"{self.id} (attempt {self.attempt})"


# Fields with default values are left out of every message.
class _Publish(bodies.Publish, kw_only=True, omit_defaults=True):
    pass


class _PublishOne(bodies.PublishOne, kw_only=True, omit_defaults=True):
    pass


class _PublishTo(transaction_bodies.PublishTo, kw_only=True, omit_defaults=True):
    pass


class _PublishMany(msgspec.Struct, kw_only=True, omit_defaults=True):
    messages: list[msgspec.Raw]
    acks: Acks = "all"


_encode = msgspec.json.Encoder().encode
_encode_json = msgspec.json.Encoder(decimal_format="number").encode


def publish_body(message: Outgoing, acks: Acks) -> bytes:
    """The body that publishes one message."""
    return _encode(_PublishOne(**_fields(message), acks=acks))


def encoded(message: Outgoing) -> bytes:
    """Encode a message for a body that publishes many, so that its size is known early."""
    return _encode(_Publish(**_fields(message)))


def batch_body(parts: Iterable[bytes], acks: Acks) -> bytes:
    return _encode(_PublishMany(messages=[msgspec.Raw(one) for one in parts], acks=acks))


def encoded_to(topic: str, message: Outgoing) -> bytes:
    """Encode a message with its topic, for a body that publishes many in a transaction."""
    return _encode(_PublishTo(topic=topic, **_fields(message)))


def transaction_body(parts: Iterable[bytes]) -> bytes:
    return _encode(_PublishMany(messages=[msgspec.Raw(one) for one in parts]))


def published_of(answer: bodies.Published) -> Published:
    return Published(
        topic=answer.topic,
        id=_set(answer.id),
        partition=_set(answer.partition),
        offset=_set(answer.offset),
        timestamp_ms=_set(answer.timestamp),
        schedule_id=_set(answer.schedule_id),
        deliver_at_ms=_set(answer.deliver_at),
    )


def message_of(answer: bodies.Message) -> Message:
    return Message(**stored_fields(answer))


def stored_fields(answer: bodies.Message) -> dict[str, Any]:
    """The fields that all kinds of messages share."""
    return {
        "id": answer.id,
        "topic": answer.topic,
        "partition": answer.partition,
        "offset": answer.offset,
        "timestamp_ms": answer.timestamp,
        "key": content(answer.key, answer.key_encoding),
        "value": content(answer.value, answer.value_encoding),
        "headers": headers_of(answer.headers),
    }


def headers_of(headers: Iterable[bodies.HeaderRead]) -> tuple[Header, ...]:
    return tuple((one.name, content(one.value, one.encoding)) for one in headers)


def content(text: str | None, encoding: Encoding) -> bytes | None:
    """The bytes of a field, decoded from text or base64."""
    if text is None:
        return None
    return text.encode() if encoding == "utf8" else b64decode(text, validate=True)


def _fields(message: Outgoing) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if isinstance(message.value, Json):
        fields["json"] = msgspec.Raw(json_bytes(message.value, "value"))
    else:
        fields["value"], fields["value_encoding"] = shown(message.value, "value")
    if isinstance(message.key, Json):
        fields["key_json"] = msgspec.Raw(json_bytes(message.key, "key"))
    elif message.key is not None:
        fields["key"], fields["key_encoding"] = shown(message.key, "key")
    if message.headers:
        fields["headers"] = _headers(message.headers)
    if message.delay is not None:
        fields["delay_ms"] = duration_ms(message.delay)
    if message.deliver_at is not None:
        fields["deliver_at"] = moment_ms(message.deliver_at)
    if message.ttl is not None:
        fields["ttl_ms"] = duration_ms(message.ttl)
    fields["priority"] = message.priority
    fields["partition"] = message.partition
    fields["timestamp"] = message.timestamp_ms
    return fields


def json_bytes(given: Json, what: str) -> bytes:
    """A value or a key as it is stored."""
    try:
        return _encode_json(given.content)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"The {what} of a message cannot be JSON: {error}.") from error


def header_pairs(headers: Headers) -> Iterable[tuple[str, Plain | None]]:
    return headers.items() if isinstance(headers, Mapping) else headers


def _headers(headers: Headers) -> list[bodies.Header]:
    made = []
    for name, value in header_pairs(headers):
        text, encoding = shown(value, f"header {name!r}")
        made.append(bodies.Header(name=name, value=text, encoding=encoding))
    return made


def shown(data: Plain | None, what: str) -> tuple[str | None, Encoding]:
    """A field as it is sent, and its encoding."""
    if data is None or isinstance(data, str):
        return data, "utf8"
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidRequest(
            f"The {what} of a message is bytes or text, not {type(data).__name__}; encode it, or "
            "pass a value or a key as goqueue.Json(...)."
        )
    data = bytes(data)
    try:
        return data.decode(), "utf8"
    except UnicodeDecodeError:
        return b64encode(data).decode("ascii"), "base64"


def _set(value: Any) -> Any:
    return None if value is msgspec.UNSET else value
