"""Messages, priorities and positions of the gRPC API as those of the client."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from google.protobuf.message import Message as Wire

from goqueue.client.errors import BrokerRefused
from goqueue.client.grpc.failures import error_of
from goqueue.client.http.messages import (
    Acks,
    Header,
    Json,
    Message,
    Outgoing,
    Plain,
    Published,
    ReceivedMessage,
    header_pairs,
    json_bytes,
)
from goqueue.client.http.moments import Position, duration_ms, moment_ms, position_text
from goqueue.client.http.requests.messages import Outcome
from goqueue.model.attributes import parse_moment
from goqueue.model.errors import GoQueueError, InvalidAttribute, InvalidRequest
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import messages_pb2 as wire
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from goqueue.wire.http.bodies.messages import Damage

PRIORITIES = ("critical", "high", "normal", "low", "background")  # from 1 on the wire
_PRIORITIES = {
    "critical": wire.PRIORITY_CRITICAL,
    "high": wire.PRIORITY_HIGH,
    "normal": wire.PRIORITY_NORMAL,
    "low": wire.PRIORITY_LOW,
    "background": wire.PRIORITY_BACKGROUND,
}
_ACKS = {"all": wire.ACKS_ALL, "leader": wire.ACKS_ALL, "none": wire.ACKS_NONE}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TAG_OF_MESSAGES = 0x12  # field 2 of PublishRequest, with a length

Cursor: TypeAlias = Sequence[wire.PartitionOffset]


# To the broker


def acks_of(acks: Acks) -> wire.Acks:
    if acks not in _ACKS:
        raise InvalidRequest(f"acks is all, leader or none, not {acks!r}.")
    return _ACKS[acks]


def outgoing(message: Outgoing) -> wire.OutgoingMessage:
    """A message as it is sent."""
    try:
        return wire.OutgoingMessage(
            key=plain_bytes(message.key, "key"),
            value=plain_bytes(message.value, "value"),
            headers=[
                wire.Header(name=name, value=plain_bytes(value, f"header {name!r}"))
                for name, value in header_pairs(message.headers)
            ],
            partition=message.partition,
            timestamp_ms=message.timestamp_ms,
            priority=_priority(message.priority),
            delay_ms=None if message.delay is None else duration_ms(message.delay),
            deliver_at_ms=None if message.deliver_at is None else moment_ms(message.deliver_at),
            ttl_ms=None if message.ttl is None else duration_ms(message.ttl),
        )
    except (ValueError, TypeError) as error:  # a number without a place in its field
        raise InvalidRequest(f"The message cannot be sent: {error}.") from error


def joined(request: Wire, parts: Iterable[bytes], tag: int = _TAG_OF_MESSAGES) -> bytes:
    """A request to which messages that were encoded before are added, as its field `tag`."""
    pieces = [request.SerializeToString()]
    for part in parts:
        pieces += (_varint(tag), _varint(len(part)), part)
    return b"".join(pieces)


def position_of(position: Position) -> consuming.Position:
    """A place to start at: a word, a time, a duration before now, or `offset:42`."""
    text = position_text(position)
    if text == "earliest":
        return consuming.Position(start=consuming.START_EARLIEST)
    if text == "latest":
        return consuming.Position(start=consuming.START_LATEST)
    kind, _, number = text.partition(":")
    if kind == "offset" and number.isdecimal():
        return consuming.Position(offset=int(number))
    return consuming.Position(time_ms=time_of(text))


def time_of(position: Position) -> int:
    """Milliseconds since 1970 of a time, or of a duration before now by this machine's clock."""
    text = position_text(position)
    if text.isascii() and text.isdecimal():
        return int(text)
    if match := _DURATION.fullmatch(text):
        return max(0, int(time.time() * 1000) - int(match[1]) * _UNITS_MS[match[2]])
    try:
        return parse_moment(text.encode())
    except InvalidAttribute:
        raise InvalidRequest(
            f"{text[:64]!r} is not a time; write a duration such as 2h, a time such as "
            "2026-01-31T12:00:00Z, or milliseconds since 1970."
        ) from None


def cursor_of(text: str) -> list[wire.PartitionOffset]:
    """A cursor as a client keeps it: `partition:offset` pairs."""
    try:
        pairs = [pair.split(":") for pair in text.split(",") if pair]
        return [wire.PartitionOffset(partition=int(one), offset=int(at)) for one, at in pairs]
    except ValueError:
        raise InvalidRequest(f"{text[:100]!r} is not a cursor of a reader.") from None


def plain_bytes(data: Plain | Json | None, what: str) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, Json):
        return json_bytes(data, what)
    raise InvalidRequest(
        f"The {what} of a message is bytes or text, not {type(data).__name__}; encode it, or pass "
        "a value or a key as goqueue.Json(...)."
    )


def _priority(name: str | None) -> wire.Priority | None:
    if name is None:
        return None
    if name not in _PRIORITIES:
        raise InvalidRequest(f"{name!r} is no priority; use one of {', '.join(PRIORITIES)}.")
    return _PRIORITIES[name]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# From the broker


def outcomes_of(topics: Sequence[str], report: publishing.PublishReport) -> list[Outcome]:
    """What became of each message, in the order of the request."""
    if len(report.partitions) != len(topics) or len(report.offsets) != len(topics):
        raise BrokerRefused("The broker reported on another number of messages than were sent.")
    outcomes: list[Outcome] = [
        Published(topic=topic, id=f"{topic}:{partition}:{offset}", partition=partition,
                  offset=offset)
        for topic, partition, offset in zip(topics, report.partitions, report.offsets, strict=True)
    ]  # fmt: skip
    for one in report.scheduled:
        outcomes[one.index] = Published(
            topic=topics[one.index], schedule_id=one.schedule_id, deliver_at_ms=one.deliver_at_ms
        )
    for failed in report.errors:
        outcomes[failed.index] = error_of(failed.error)
    return outcomes


def message_of(one: wire.StoredMessage) -> Message:
    return Message(
        id=f"{one.topic}:{one.partition}:{one.offset}",
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
        timestamp_ms=one.timestamp_ms,
        key=one.key if one.HasField("key") else None,
        value=one.value if one.HasField("value") else None,
        headers=headers_of(one.headers),
    )


def received_of(group: str, one: consuming.ReceivedMessage) -> ReceivedMessage:
    return ReceivedMessage(
        id=f"{one.topic}:{one.partition}:{one.offset}",
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
        timestamp_ms=one.timestamp_ms,
        key=one.key if one.HasField("key") else None,
        value=one.value if one.HasField("value") else None,
        headers=headers_of(one.headers),
        receipt=one.receipt,
        group=group,
        priority=priority_name(one.priority),
        attempt=one.attempt,
        lease_until_ms=one.leased_until_ms,
    )


def headers_of(headers: Iterable[wire.Header]) -> tuple[Header, ...]:
    return tuple((one.name, one.value if one.HasField("value") else None) for one in headers)


def priority_name(number: int) -> str:
    return PRIORITIES[number - 1] if 0 < number <= len(PRIORITIES) else "normal"


def cursor_text(cursor: Cursor) -> str:
    return ",".join(f"{one.partition}:{one.offset}" for one in cursor)


def damage_of(one: wire.UnreadableRange) -> Damage:
    return Damage(
        partition=one.partition,
        offset=one.offset,
        next_offset=one.next_offset,
        detail=one.detail,
    )


def receipt_outcomes(
    receipts: Sequence[str], errors: Iterable[wire.ReceiptError]
) -> list[GoQueueError | None]:
    """None or the error for each receipt, in the given order."""
    failed = {one.receipt: error_of(one.error) for one in errors}
    return [failed.get(one) for one in receipts]
