"""The types of the Kafka wire format: how each is read from and written to bytes.

A reader is a function `(data, pos) -> (value, pos after it)`. A writer is a function `(write,
value)`, where `write` takes chunks of bytes, usually `list.append`. The generated messages are
compositions of these functions; `decode_message` and `encode_message` run them.

Readers do not trust their input. A length is compared with the remaining bytes before anything is
allocated for it, so decoding never allocates more than a small multiple of its input. Reading past
the end raises `struct.error` or `IndexError`, which costs nothing in the normal case;
`decode_message` turns these into `MalformedRequest`, so call readers through it (or catch
`READ_ERRORS`).

Representations:

- A uuid is 16 bytes, `bytes`: reading one costs a tenth of building a `uuid.UUID`, and it is
  hashable and comparable all the same.
- `bytes` fields are copied, because the receive buffer is reused.
- `records` fields are memoryviews of the input, and keep it alive.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct, pack, unpack_from
from typing import Final, TypeAlias, TypeVar

from goqueue.model.errors import MalformedRequest, UnsupportedVersion

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview
Write: TypeAlias = Callable[[Buffer], object]
Reader: TypeAlias = Callable[[Buffer, int], tuple[T, int]]
Writer: TypeAlias = Callable[[Write, T], None]

UUID_ZERO: Final = bytes(16)
TAG_SECTION_EMPTY: Final = b"\x00"
READ_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError)

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_UVARINTS_SHORT: Final = tuple(bytes((value,)) for value in range(128))
_NULL_INT16: Final = b"\xff\xff"
_NULL_INT32: Final = b"\xff\xff\xff\xff"
_NULL_COMPACT: Final = b"\x00"
_EMPTY_COMPACT: Final = b"\x01"
_UVARINT_BYTES_MAX: Final = 5
_UVARLONG_BYTES_MAX: Final = 10
_STRING_BYTES_MAX: Final = 0x7FFF


# Whole messages


def decode_message(
    name: str, readers: Mapping[int, Reader[T]], data: Buffer, version: int, start: int
) -> T:
    """Decode one message starting at `start`.

    Bytes after its end are ignored, as in Kafka: librdkafka ends its metadata request for all
    topics with three extra bytes.
    """
    message, _ = read_message(name, readers, data, version, start)
    return message


def read_message(
    name: str, readers: Mapping[int, Reader[T]], data: Buffer, version: int, start: int
) -> tuple[T, int]:
    """Decode one message; return it and the position after it."""
    reader = readers.get(version)
    if reader is None:
        raise _unsupported_version(name, version)
    try:
        return reader(data, start)
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"{name} version {version} holds text that is not UTF-8.") from error
    except READ_ERRORS as error:
        raise MalformedRequest(
            f"{name} version {version} needs more than the {len(data) - start} bytes it came with."
        ) from error


def encode_message(name: str, writers: Mapping[int, Writer[T]], message: T, version: int) -> bytes:
    chunks: list[Buffer] = []
    write_message(name, writers, message, version, chunks)
    return b"".join(chunks)


def write_message(
    name: str, writers: Mapping[int, Writer[T]], message: T, version: int, chunks: list[Buffer]
) -> None:
    """Append the bytes of `message` to `chunks`; records are appended without copying."""
    writer = writers.get(version)
    if writer is None:
        raise _unsupported_version(name, version)
    try:
        writer(chunks.append, message)
    except AbsentField as error:
        raise UnsupportedVersion(
            f"{name} version {version} has no field {error}; leave it unset or use a newer version."
        ) from None
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{name} version {version} cannot carry these values: {error}.") from error


class AbsentField(Exception):
    """A value was given for a field that this version does not have and that must not be lost."""


def not_null(value: T | None, field: str) -> T:
    """Return a value that is nullable in other versions, but not in this one."""
    if value is None:
        raise ValueError(f"{field} may not be null")
    return value


def _unsupported_version(name: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"Version {version} of {name} is not supported.")


# Variable-length integers


def read_uvarint(data: Buffer, pos: int) -> tuple[int, int]:
    value = data[pos]
    if value < 0x80:
        return value, pos + 1
    value, pos = _read_base128(data, pos, _UVARINT_BYTES_MAX)
    if value > 0xFFFF_FFFF:
        raise MalformedRequest("A varint exceeds 32 bits.")
    return value, pos


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    value, pos = read_uvarint(data, pos)
    return (value >> 1) ^ -(value & 1), pos


def read_varlong(data: Buffer, pos: int) -> tuple[int, int]:
    value, pos = _read_base128(data, pos, _UVARLONG_BYTES_MAX)
    if value > 0xFFFF_FFFF_FFFF_FFFF:
        raise MalformedRequest("A varlong exceeds 64 bits.")
    return (value >> 1) ^ -(value & 1), pos


def _read_base128(data: Buffer, pos: int, bytes_max: int) -> tuple[int, int]:
    value = 0
    for index in range(bytes_max):
        byte = data[pos + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, pos + index + 1
    raise MalformedRequest(f"A varint is longer than {bytes_max} bytes.")


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 0x80:
        return _UVARINTS_SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """The bytes of a signed (zigzag) varint of up to 32 bits."""
    return uvarint((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """The bytes of a signed (zigzag) varint of up to 64 bits."""
    return uvarint((value << 1) ^ (value >> 63))


# Strings


def read_string(data: Buffer, pos: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, pos)
    pos += 2
    end = pos + length
    if length < 0 or end > len(data):
        raise _wrong_length("string", length, len(data) - pos)
    return str(data[pos:end], "utf-8"), end


def read_nullable_string(data: Buffer, pos: int) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(data, pos)
    if length == -1:
        return None, pos + 2
    return read_string(data, pos)


def read_compact_string(data: Buffer, pos: int) -> tuple[str, int]:
    length = data[pos]
    pos += 1
    if length >= 0x80:
        length, pos = read_uvarint(data, pos - 1)
    end = pos + length - 1
    if length == 0 or end > len(data):
        raise _wrong_length("string", length - 1, len(data) - pos)
    return str(data[pos:end], "utf-8"), end


def read_compact_nullable_string(data: Buffer, pos: int) -> tuple[str | None, int]:
    if data[pos] == 0:
        return None, pos + 1
    return read_compact_string(data, pos)


def write_string(write: Write, value: str) -> None:
    raw = value.encode()
    write(_INT16.pack(len(raw)))
    write(raw)


def write_nullable_string(write: Write, value: str | None) -> None:
    if value is None:
        write(_NULL_INT16)
    else:
        write_string(write, value)


def write_compact_string(write: Write, value: str) -> None:
    raw = value.encode()
    length = len(raw)
    if length > _STRING_BYTES_MAX:
        raise ValueError(f"a string of {length} bytes exceeds {_STRING_BYTES_MAX}")
    write(_UVARINTS_SHORT[length + 1] if length < 0x7F else uvarint(length + 1))
    write(raw)


def write_compact_nullable_string(write: Write, value: str | None) -> None:
    if value is None:
        write(_NULL_COMPACT)
    else:
        write_compact_string(write, value)


# Bytes and records


def read_bytes(data: Buffer, pos: int) -> tuple[bytes, int]:
    pos, end = _read_span(data, pos)
    return bytes(data[pos:end]), end


def read_nullable_bytes(data: Buffer, pos: int) -> tuple[bytes | None, int]:
    if _is_null_int32(data, pos):
        return None, pos + 4
    return read_bytes(data, pos)


def read_compact_bytes(data: Buffer, pos: int) -> tuple[bytes, int]:
    pos, end = _read_compact_span(data, pos)
    return bytes(data[pos:end]), end


def read_compact_nullable_bytes(data: Buffer, pos: int) -> tuple[bytes | None, int]:
    if data[pos] == 0:
        return None, pos + 1
    return read_compact_bytes(data, pos)


def read_records(data: Buffer, pos: int) -> tuple[memoryview, int]:
    pos, end = _read_span(data, pos)
    return memoryview(data)[pos:end], end


def read_nullable_records(data: Buffer, pos: int) -> tuple[memoryview | None, int]:
    if _is_null_int32(data, pos):
        return None, pos + 4
    return read_records(data, pos)


def read_compact_records(data: Buffer, pos: int) -> tuple[memoryview, int]:
    pos, end = _read_compact_span(data, pos)
    return memoryview(data)[pos:end], end


def read_compact_nullable_records(data: Buffer, pos: int) -> tuple[memoryview | None, int]:
    if data[pos] == 0:
        return None, pos + 1
    return read_compact_records(data, pos)


def _read_span(data: Buffer, pos: int) -> tuple[int, int]:
    (length,) = _INT32.unpack_from(data, pos)
    pos += 4
    if not 0 <= length <= len(data) - pos:
        raise _wrong_length("byte array", length, len(data) - pos)
    return pos, pos + length


def _read_compact_span(data: Buffer, pos: int) -> tuple[int, int]:
    length, pos = read_uvarint(data, pos)
    if not 0 <= length - 1 <= len(data) - pos:
        raise _wrong_length("byte array", length - 1, len(data) - pos)
    return pos, pos + length - 1


def _is_null_int32(data: Buffer, pos: int) -> bool:
    return bool(_INT32.unpack_from(data, pos)[0] == -1)


def write_bytes(write: Write, value: Buffer) -> None:
    write(_INT32.pack(_byte_length(value)))
    write(value)


def write_nullable_bytes(write: Write, value: Buffer | None) -> None:
    if value is None:
        write(_NULL_INT32)
    else:
        write_bytes(write, value)


def write_compact_bytes(write: Write, value: Buffer) -> None:
    write(uvarint(_byte_length(value) + 1))
    write(value)


def write_compact_nullable_bytes(write: Write, value: Buffer | None) -> None:
    if value is None:
        write(_NULL_COMPACT)
    else:
        write_compact_bytes(write, value)


def _byte_length(value: Buffer) -> int:
    return value.nbytes if isinstance(value, memoryview) else len(value)


# Arrays


def read_array(data: Buffer, pos: int, item_bytes: int, read: Reader[T]) -> tuple[list[T], int]:
    """Read the items of an array; `item_bytes` is the smallest size of an item."""
    (count,) = _INT32.unpack_from(data, pos)
    pos += 4
    if count < 0 or count * item_bytes > len(data) - pos:
        raise _wrong_count(count, len(data) - pos)
    return _read_items(data, pos, count, read)


def read_nullable_array(
    data: Buffer, pos: int, item_bytes: int, read: Reader[T]
) -> tuple[list[T] | None, int]:
    if _is_null_int32(data, pos):
        return None, pos + 4
    return read_array(data, pos, item_bytes, read)


def read_compact_array(
    data: Buffer, pos: int, item_bytes: int, read: Reader[T]
) -> tuple[list[T], int]:
    count, pos = read_uvarint(data, pos)
    count -= 1
    if count < 0 or count * item_bytes > len(data) - pos:
        raise _wrong_count(count, len(data) - pos)
    return _read_items(data, pos, count, read)


def read_compact_nullable_array(
    data: Buffer, pos: int, item_bytes: int, read: Reader[T]
) -> tuple[list[T] | None, int]:
    if data[pos] == 0:
        return None, pos + 1
    return read_compact_array(data, pos, item_bytes, read)


def _read_items(data: Buffer, pos: int, count: int, read: Reader[T]) -> tuple[list[T], int]:
    items: list[T] = []
    for _ in range(count):
        item, pos = read(data, pos)
        items.append(item)
    return items, pos


def write_array(write: Write, items: Sequence[T], write_item: Writer[T]) -> None:
    write(_INT32.pack(len(items)))
    for item in items:
        write_item(write, item)


def write_nullable_array(write: Write, items: Sequence[T] | None, write_item: Writer[T]) -> None:
    if items is None:
        write(_NULL_INT32)
    else:
        write_array(write, items, write_item)


def write_compact_array(write: Write, items: Sequence[T], write_item: Writer[T]) -> None:
    write(uvarint(len(items) + 1))
    for item in items:
        write_item(write, item)


def write_compact_nullable_array(
    write: Write, items: Sequence[T] | None, write_item: Writer[T]
) -> None:
    if items is None:
        write(_NULL_COMPACT)
    else:
        write_compact_array(write, items, write_item)


# Arrays of integers, with one call of `struct` per array. `code` is the format character.


def read_integers(data: Buffer, pos: int, item_bytes: int, code: str) -> tuple[list[int], int]:
    (count,) = _INT32.unpack_from(data, pos)
    pos += 4
    end = pos + count * item_bytes
    if count < 0 or end > len(data):
        raise _wrong_count(count, len(data) - pos)
    return list(unpack_from(f">{count}{code}", data, pos)), end


def read_nullable_integers(
    data: Buffer, pos: int, item_bytes: int, code: str
) -> tuple[list[int] | None, int]:
    if _is_null_int32(data, pos):
        return None, pos + 4
    return read_integers(data, pos, item_bytes, code)


def read_compact_integers(
    data: Buffer, pos: int, item_bytes: int, code: str
) -> tuple[list[int], int]:
    count, pos = read_uvarint(data, pos)
    count -= 1
    end = pos + count * item_bytes
    if count < 0 or end > len(data):
        raise _wrong_count(count, len(data) - pos)
    return list(unpack_from(f">{count}{code}", data, pos)), end


def read_compact_nullable_integers(
    data: Buffer, pos: int, item_bytes: int, code: str
) -> tuple[list[int] | None, int]:
    if data[pos] == 0:
        return None, pos + 1
    return read_compact_integers(data, pos, item_bytes, code)


def write_integers(write: Write, values: Sequence[int], code: str) -> None:
    count = len(values)
    write(_integers_struct("i", count, code).pack(count, *values))


def write_nullable_integers(write: Write, values: Sequence[int] | None, code: str) -> None:
    if values is None:
        write(_NULL_INT32)
    else:
        write_integers(write, values, code)


def write_compact_integers(write: Write, values: Sequence[int], code: str) -> None:
    count = len(values)
    if count == 0:
        write(_EMPTY_COMPACT)
    elif count < 0x7F:
        write(_integers_struct("B", count, code).pack(count + 1, *values))
    else:
        write(uvarint(count + 1))
        write(pack(f">{count}{code}", *values))


@lru_cache(maxsize=256)
def _integers_struct(prefix: str, count: int, code: str) -> Struct:
    # Most arrays are as long as the previous one: the replicas of a partition, for example.
    return Struct(f">{prefix}{count}{code}")


def write_compact_nullable_integers(write: Write, values: Sequence[int] | None, code: str) -> None:
    if values is None:
        write(_NULL_COMPACT)
    else:
        write_compact_integers(write, values, code)


def read_uuid(data: Buffer, pos: int) -> tuple[bytes, int]:
    """Read one item of an array of uuids; a single uuid is part of a fixed-size run."""
    end = pos + 16
    if end > len(data):
        raise _wrong_length("uuid", 16, len(data) - pos)
    return bytes(data[pos:end]), end


def write_uuid(write: Write, value: bytes) -> None:
    if len(value) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
    write(value)


# Structs that may be null


def read_nullable_struct(data: Buffer, pos: int, read: Reader[T]) -> tuple[T | None, int]:
    # The marker is a signed byte; any negative value means null.
    if data[pos] >= 0x80:
        return None, pos + 1
    return read(data, pos + 1)


def write_nullable_struct(write: Write, value: T | None, write_value: Writer[T]) -> None:
    if value is None:
        write(b"\xff")
    else:
        write(b"\x01")
        write_value(write, value)


# Tagged fields


def skip_tagged_fields(data: Buffer, pos: int) -> int:
    """Return the position after a section of unknown tagged fields."""
    count, pos = read_uvarint(data, pos)
    _check_tag_count(data, pos, count)
    for _ in range(count):
        _, pos, end = read_tag(data, pos)
        pos = end
    return pos


def read_tag_count(data: Buffer, pos: int) -> tuple[int, int]:
    count, pos = read_uvarint(data, pos)
    _check_tag_count(data, pos, count)
    return count, pos


def read_tag(data: Buffer, pos: int) -> tuple[int, int, int]:
    """Return a field's tag, and the start and end of its value."""
    tag, pos = read_uvarint(data, pos)
    size, pos = read_uvarint(data, pos)
    end = pos + size
    if end > len(data):
        raise _wrong_length("tagged field", size, len(data) - pos)
    return tag, pos, end


def check_tag_end(tag: int, pos: int, end: int) -> None:
    if pos != end:
        raise MalformedRequest(f"The value of tagged field {tag} does not have its stated size.")


def _check_tag_count(data: Buffer, pos: int, count: int) -> None:
    # A tagged field has at least two bytes, one for its tag and one for its size.
    if count * 2 > len(data) - pos:
        raise _wrong_count(count, len(data) - pos)


class TaggedFields:
    """The tagged fields of one struct being written; add them in the order of their tags."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: list[tuple[int, list[Buffer]]] = []

    def add(self, tag: int) -> Write:
        """Start a field; return the function that takes its bytes."""
        chunks: list[Buffer] = []
        self._fields.append((tag, chunks))
        return chunks.append

    def write_to(self, write: Write) -> None:
        write(uvarint(len(self._fields)))
        for tag, chunks in self._fields:
            value = b"".join(chunks)
            write(uvarint(tag))
            write(uvarint(len(value)))
            write(value)


# Errors


def _wrong_length(what: str, length: int, remaining: int) -> MalformedRequest:
    if length < 0:
        return MalformedRequest(f"A {what} that may not be null has the length {length}.")
    return MalformedRequest(
        f"A {what} of {length} bytes is announced, but {max(remaining, 0)} bytes are left."
    )


def _wrong_count(count: int, remaining: int) -> MalformedRequest:
    if count < 0:
        return MalformedRequest(f"An array that may not be null has the length {count}.")
    return MalformedRequest(
        f"An array of {count} items is announced, but only {max(remaining, 0)} bytes are left."
    )
