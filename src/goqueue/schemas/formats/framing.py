"""How serializers of a registry name the schema of a payload.

A payload begins with a zero byte and the four bytes of a schema id; in Protobuf the indexes of its
message in the file follow. Newer serializers leave the payload as it is, and name the schema in a
header: the same five bytes, or a one and the sixteen bytes of a schema's guid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from goqueue.schemas.formats.interface import SchemaViolation

FRAME_BYTES = 5
GUID_FRAME_BYTES = 17
FIRST_MESSAGE = (0,)
MESSAGE_INDEXES_MAX = 64  # nesting depth of a Protobuf message


def header_name(part: str) -> str:
    """The header that names the schema of a key or a value."""
    return f"__{part}_schema_id"


def frame_in_headers(part: str, headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    """The frame in a header, if there is one."""
    expected = header_name(part)
    for name, content in headers:
        if name == expected and content is not None and is_frame(content):
            return bytes(content)
    return None


def is_frame(data: bytes) -> bool:
    """Whether these bytes name a schema, by its id or its guid."""
    is_guid = len(data) == GUID_FRAME_BYTES and data[0] == 1
    return is_guid or (len(data) == FRAME_BYTES and data[0] == 0)


def schema_in(frame: bytes) -> int | str:
    """The id of the schema that a frame names, or its guid."""
    if len(frame) == GUID_FRAME_BYTES:
        return str(UUID(bytes=frame[1:]))
    return int.from_bytes(frame[1:], "big")


def frame_of(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def message_frame(indexes: Sequence[int]) -> bytes:
    """The indexes of a Protobuf message, outermost first, as they stand before it."""
    if tuple(indexes) == FIRST_MESSAGE:
        return b"\0"
    return b"".join(_zigzag(one) for one in (len(indexes), *indexes))


def read_message_frame(data: bytes | memoryview) -> tuple[tuple[int, ...], int]:
    """The indexes of the message that follows, outermost first, and where it begins."""
    count, at = _read_zigzag(data, 0)
    if count == 0:
        return FIRST_MESSAGE, at  # the first message, the most frequent case
    if not 0 < count <= MESSAGE_INDEXES_MAX:
        raise SchemaViolation("", f"it names {count} messages inside of one another")
    indexes = []
    for _ in range(count):
        index, at = _read_zigzag(data, at)
        if index < 0:
            raise SchemaViolation("", "it names a message by a negative number")
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(number: int) -> bytes:
    rest = number << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_zigzag(data: bytes | memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at
        shift += 7
    raise SchemaViolation("", "it ends before it says which message it is")
