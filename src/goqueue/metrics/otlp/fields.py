"""Fields of protobuf messages: the bytes of a message in and out, without its schema."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error

from goqueue.model.errors import MalformedRequest

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
DOUBLE = Struct("<d")
_FIXED64 = Struct("<Q")
_VARINT_BITS_MAX = 63


class Fields:
    """Reads fields of one message and the messages in it, up to a number of fields."""

    def __init__(self, data: bytes | bytearray | memoryview, fields_max: int) -> None:
        self.data = data
        self._left = fields_max

    def of(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, type, and start and stop of the bytes of each field.

        Of a varint, the third value is its value.
        """
        data, at = self.data, start
        while at < stop:
            self._left -= 1
            if self._left < 0:
                raise MalformedRequest("A message of metrics has too many fields.")
            tag, at = read_varint(data, at, stop)
            kind = tag & 7
            if kind == BYTES:
                length, at = read_varint(data, at, stop)
                end = at + length
            elif kind == VARINT:
                value, end = read_varint(data, at, stop)
                yield tag >> 3, kind, value, end
                at = end
                continue
            elif kind == FIXED64:
                end = at + 8
            elif kind == FIXED32:
                end = at + 4
            else:
                raise MalformedRequest(f"A field of a message of metrics has the type {kind}.")
            if end > stop:
                raise MalformedRequest("A field of a message of metrics ends after its message.")
            yield tag >> 3, kind, at, end
            at = end


def read_varint(data: bytes | bytearray | memoryview, at: int, stop: int) -> tuple[int, int]:
    """Return an unsigned number of variable length, and where it ends."""
    value = shift = 0
    while at < stop:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise MalformedRequest("A number in a message of metrics is too long.")
    raise MalformedRequest("A number in a message of metrics is cut off.")


def read_double(data: bytes | bytearray | memoryview, at: int) -> float:
    try:
        (value,) = DOUBLE.unpack_from(data, at)
    except error:
        raise MalformedRequest("A number in a message of metrics is cut off.") from None
    return float(value)


def read_signed(data: bytes | bytearray | memoryview, at: int) -> int:
    """Return a signed number of fixed size."""
    return int.from_bytes(data[at : at + 8], "little", signed=True)


def varint(value: int) -> bytes:
    """Encode an unsigned number."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def number(field: int, value: int) -> bytes:
    """Encode a field with an unsigned number, an enum or a bool."""
    return varint(field << 3 | VARINT) + varint(value)


def fixed(field: int, value: int) -> bytes:
    """Encode a field with an unsigned number of 64 bits."""
    return varint(field << 3 | FIXED64) + _FIXED64.pack(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | FIXED64) + DOUBLE.pack(value)


def nested(field: int, value: bytes) -> bytes:
    """Encode a field with a message, bytes or UTF-8."""
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    # Names that clients choose may have code points that are not text.
    return nested(field, value.encode(errors="replace"))
