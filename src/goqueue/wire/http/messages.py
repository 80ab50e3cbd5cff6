"""Converts records to messages and back without loss.

A publisher may also send JSON as it is, beside text and base64.

Text is sent as it is, bytes that are not UTF-8 as base64; the encoding field beside a value says
which of the two it is. A client that wants a uniform encoding requests base64.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, UnsetType
from msgspec.json import format as format_json

from goqueue.model import attributes
from goqueue.model.batch import Header as RecordHeader
from goqueue.model.batch import Record
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.bodies.messages import (
    TRACE_PARENT,
    Header,
    HeaderRead,
    Message,
    Publish,
)
from goqueue.wire.http.fields import Encoding

LARGE_BYTES = 64 << 10
HEADERS_PER_REQUEST_MAX = 50_000
# As the standard requires, an invalid one is ignored; versions after 00 may have further fields.
_TRACE_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?")
# Each of them takes six bytes in JSON, other characters one or two.
_CONTROL_CHARACTERS = bytes(set(range(32)) - set(b"\b\t\n\f\r"))


def message_id(topic: str, partition: int, offset: int) -> str:
    """The id of a message; it can be parsed, because topic names contain no colon."""
    return f"{topic}:{partition}:{offset}"


class Shown(NamedTuple):
    """Bytes as text, and the encoding used."""

    text: str | None
    encoding: Encoding


def show(content: bytes | None, wanted: Encoding) -> Shown:
    if content is None:
        return Shown(None, wanted)
    if wanted == "utf8" and not _grows_much(content):
        try:
            return Shown(content.decode(), "utf8")
        except UnicodeDecodeError:
            pass
    return Shown(b64encode(content).decode("ascii"), "base64")


def _grows_much(content: bytes) -> bool:
    """Whether JSON would expand this text several times, because of control characters."""
    if len(content) < LARGE_BYTES:
        return False
    plain = len(content.translate(None, _CONTROL_CHARACTERS))
    return len(content) - plain > len(content) // 16


def read(text: str | None, encoding: Encoding, field: str) -> bytes | None:
    """The bytes of a field that a client has sent."""
    if text is None:
        return None
    if encoding == "utf8":
        return text.encode()
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidField(
            f"The field {field!r} is not base64: {error}; send text with the encoding 'utf8'.",
            field=field,
        ) from None


def to_message(topic: str, partition: int, record: Record, encoding: Encoding) -> Message:
    return Message(**message_fields(topic, partition, record, encoding))


def message_fields(
    topic: str, partition: int, record: Record, encoding: Encoding
) -> dict[str, Any]:
    """The fields of a message, also for structs that extend it."""
    key, key_encoding = show(record.key, encoding)
    value, value_encoding = show(record.value, encoding)
    return {
        "id": f"{topic}:{partition}:{record.offset}",
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": show_headers(record.headers, encoding) if record.headers else [],
    }


def show_headers(headers: Iterable[RecordHeader], wanted: Encoding) -> list[HeaderRead]:
    shown = []
    for name, content in headers:
        text, encoding = show(content, wanted)
        shown.append(HeaderRead(name=name, value=text, encoding=encoding))
    return shown


def check_header_count(messages: Sequence[Publish]) -> None:
    """Refuse a request with so many headers that it would delay other requests."""
    if sum(len(one.headers) for one in messages) > HEADERS_PER_REQUEST_MAX:
        raise InvalidField(
            f"The messages of one request may have {HEADERS_PER_REQUEST_MAX} headers together; "
            "send fewer at once.",
            field="messages",
        )


def to_record(publish: Publish, *, now_ms: int, trace_parent: bytes = b"") -> Record:
    """The record of a message; delay, lane and time to live become headers, as for any client.

    So does the `traceparent` of the request, if it is valid and the message has none of its own.
    """
    value, timestamp = publish.value, publish.timestamp
    is_text = publish.json is UNSET and publish.value_encoding == "utf8"
    return Record(
        None if publish.key is None and publish.key_json is UNSET else _read_key(publish),
        value.encode() if is_text and isinstance(value, str) else _read_value(publish),
        _headers(publish, trace_parent),
        now_ms if timestamp is None else timestamp,
    )


def _read_value(publish: Publish) -> bytes | None:
    value, json = publish.value, publish.json
    if isinstance(json, UnsetType):
        if isinstance(value, UnsetType):
            raise InvalidField("A message needs a 'value', or 'json' instead.", field="value")
        return read(value, publish.value_encoding, "value")
    if value is not UNSET or publish.value_encoding != "utf8":
        raise InvalidField(
            "A message has 'value', with 'value_encoding', or 'json'; send only one of them.",
            field="json",
        )
    return read_json(json, "json")


def _read_key(publish: Publish) -> bytes | None:
    if isinstance(publish.key_json, UnsetType):
        return read(publish.key, publish.key_encoding, "key")
    if publish.key is not None or publish.key_encoding != "utf8":
        raise InvalidField(
            "A message has 'key', with 'key_encoding', or 'key_json'; send only one of them.",
            field="key_json",
        )
    return read_json(publish.key_json, "key_json")


def read_json(content: Raw, field: str) -> bytes:
    """JSON as a client has written it, without white space between its parts.

    It is not decoded, which would change numbers: large ones, and those with decimals.
    """
    try:
        text = bytes(format_json(content, indent=-1))
    except RecursionError:  # the decoder of the request had a little more stack
        raise InvalidField(f"The field {field!r} is nested too deeply.", field=field) from None
    if not text.isascii():
        try:  # the decoder has checked everything but this
            text.decode()
        except UnicodeDecodeError as error:
            raise InvalidField(f"The field {field!r} is not UTF-8: {error}.", field=field) from None
    return text


def _headers(publish: Publish, trace_parent: bytes) -> tuple[RecordHeader, ...]:
    asked: list[RecordHeader] = []
    has_own = trace_parent and any(one.name == TRACE_PARENT for one in publish.headers)
    if trace_parent and not has_own and _TRACE_PARENT.fullmatch(trace_parent):
        asked.append((TRACE_PARENT, trace_parent))
    if publish.priority is not None:
        asked.append((attributes.PRIORITY_HEADER, str(publish.priority).encode()))
    if publish.delay_ms is not None:
        asked.append((attributes.DELAY_HEADER, b"%d" % publish.delay_ms))
    if publish.deliver_at is not None:
        asked.append((attributes.DELIVER_AT_HEADER, str(publish.deliver_at).encode()))
    if publish.ttl_ms is not None:
        asked.append((attributes.TTL_HEADER, b"%d" % publish.ttl_ms))
    if not publish.headers:
        return tuple(asked)
    given = [(one.name, _read_header(one)) for one in publish.headers]
    twice = {name for name, _ in asked} & {name for name, _ in given}
    if twice:
        raise InvalidField(
            f"The header {min(twice)!r} and the field mean the same; send only one of them.",
            field="headers",
        )
    return (*given, *asked)


def _read_header(header: Header) -> bytes | None:
    return read(header.value, header.encoding, "headers.value")
