"""How commands print messages: as text, JSON, raw bytes, by a template, or as rows of a table."""

from __future__ import annotations

import base64
import enum
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from goqueue.cli.moments import show_time
from goqueue.client import ReadRecord
from goqueue.client.http import Message
from goqueue.model.errors import InvalidRequest

if TYPE_CHECKING:
    from goqueue.cli.decoding import DecodedRecord

_TEXT_SHOWN = 60  # characters of a key or a value in a table

Render = Callable[[ReadRecord], bytes]


class Format(enum.StrEnum):
    TEXT = "text"  # the value on a line
    JSON = "json"  # one object on a line
    RAW = "raw"  # the bytes of the value and nothing else


def rendering(form: Format, template: str | None) -> Render:
    """The function that formats a record; a template has precedence over a format."""
    if template is not None:
        return compile_template(template)
    return {Format.TEXT: as_text, Format.JSON: as_json, Format.RAW: as_raw}[form]


def as_text(record: ReadRecord) -> bytes:
    """The value as a line of text, with bytes that are not text escaped."""
    if record.value is None:
        return b"\n"
    return record.value.decode("utf-8", "backslashreplace").encode() + b"\n"


def as_raw(record: ReadRecord) -> bytes:
    return record.value or b""


def as_json(record: ReadRecord) -> bytes:
    """One line of JSON; bytes that are not UTF-8 are in `key_base64` and `value_base64` instead."""
    return _line(_place(record), as_field("key", record.key), as_field("value", record.value),
                 _headers(record))  # fmt: skip


def as_decoded_json(decoded: DecodedRecord) -> bytes:
    """One line of JSON, with keys and values that are JSON already, and their schemas."""
    record = decoded.record
    return _line(
        _place(record),
        _decoded_field("key", record.key, decoded.key_schema),
        _decoded_field("value", record.value, decoded.value_schema),
        _headers(record),
    )


def _line(*parts: Mapping[str, object]) -> bytes:
    fields = [
        f"{json.dumps(name)}: {one if isinstance(one, _Shown) else _dumps(one)}"
        for part in parts
        for name, one in part.items()
    ]
    return f"{{{', '.join(fields)}}}\n".encode()


class _Shown(str):
    """JSON that is not encoded again, so that its numbers stay as they are."""


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _place(record: ReadRecord) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": show_time(record.timestamp_ms),
        "timestamp_ms": record.timestamp_ms,
    }


def _headers(record: ReadRecord) -> dict[str, object]:
    shown = [{"name": name, **as_field("value", value)} for name, value in record.headers]
    return {"headers": shown}


def _decoded_field(name: str, data: bytes | None, schema: int | str | None) -> Mapping[str, object]:
    if data is None or schema is None:
        return as_field(name, data)
    return {name: _Shown(data.decode()), f"{name}_schema": schema}


def as_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """A JSON field: text under `name`, other bytes in base64 under `name`_base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def message_row(message: Message) -> dict[str, object]:
    """A message for a table, with long texts cut."""
    return {
        "id": message.id,
        "time": show_time(message.timestamp_ms),
        "key": shorten(message.key),
        "value": shorten(message.value),
    }


def message_tree(message: Message) -> dict[str, object]:
    """A whole message for programs; bytes that are not UTF-8 are in `value_base64` and so on."""
    return {
        "id": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": show_time(message.timestamp_ms),
        "timestamp_ms": message.timestamp_ms,
        **as_field("key", message.key),
        **as_field("value", message.value),
        "headers": [{"name": name, **as_field("value", one)} for name, one in message.headers],
    }


def shorten(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data.decode("utf-8", "backslashreplace")
    text = " ".join(text.split())
    return text if len(text) <= _TEXT_SHOWN else text[: _TEXT_SHOWN - 1] + "…"


# The same letters as in the -f option of kcat.
_FIELDS: dict[str, Render] = {
    "%t": lambda record: record.topic.encode(),
    "%p": lambda record: b"%d" % record.partition,
    "%o": lambda record: b"%d" % record.offset,
    "%k": lambda record: record.key or b"",
    "%s": lambda record: record.value or b"",
    "%K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "%S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    "%T": lambda record: b"%d" % record.timestamp_ms,
    "%h": lambda record: b",".join(
        name.encode() + b"=" + (value or b"") for name, value in record.headers
    ),
}
_LITERALS = {"%%": b"%", r"\n": b"\n", r"\t": b"\t", r"\r": b"\r", r"\\": b"\\"}
_TOKEN = re.compile(r"%.|\\x[0-9a-fA-F]{2}|\\.|[^%\\]+|[%\\]")


def compile_template(template: str) -> Render:
    """Return a function that fills in a template such as `%p@%o %k: %s\\n`."""
    pieces = [_piece(token) for token in _TOKEN.findall(template)]
    return lambda record: b"".join(
        piece if isinstance(piece, bytes) else piece(record) for piece in pieces
    )


def _piece(token: str) -> bytes | Render:
    if token in _FIELDS:
        return _FIELDS[token]
    if token in _LITERALS:
        return _LITERALS[token]
    if token.startswith(r"\x"):
        return bytes([int(token[2:], 16)])
    if token[0] in "%\\":
        raise InvalidRequest(
            f"{token} is unknown in a template; use {' '.join(_FIELDS)} %% and \\n \\t \\r \\\\."
        )
    return token.encode()
