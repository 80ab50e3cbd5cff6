"""Decodes the bytes of records in plain Python: numbers, fields, headers, and refusals."""

from __future__ import annotations

from goqueue.model.compression import Buffer
from goqueue.model.errors import CorruptBatch

RECORD_HEADERS_MAX = 10_000  # each becomes several objects when decoded
RECORD_BYTES_MIN = 6  # attributes, two deltas, two lengths and the number of headers

Headers = tuple[tuple[str, bytes | None], ...]

BEYOND_BATCH = "A record claims more bytes than its batch has."
BEYOND_RECORD = "A field of a record reaches beyond the record."
FIELD_LENGTH = "The length of a key, a value or a header is below -1."
INT_TOO_LONG = "A length, a count or an offset in a record is longer than 32 bits."
NUMBER_TOO_LONG = "A number in a record is longer than 64 bits."
HEADER_COUNT = "A record claims more headers than it has bytes, or less than none."
HEADERS_TOO_MANY = "A record has more than 10000 headers."
HEADER_NAME = "A record header has no name, or one that is not UTF-8."
NOT_FILLED = "A record's fields do not fill its length."
BYTES_LEFT = "A batch has bytes left after its last record."
OUT_OF_RANGE = "A record's time or offset does not fit 64 bits."
OFFSET_DELTA = "The offsets of a batch's records do not count up from zero."

_INT_BYTES_MAX = 5


def read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptBatch(HEADER_COUNT)
    if count > RECORD_HEADERS_MAX:
        raise CorruptBatch(HEADERS_TOO_MANY)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = read_bytes(data, position, end)
        content, position = read_bytes(data, position, end)
        try:
            if name is None:
                raise CorruptBatch(HEADER_NAME)
            found.append((name.decode(), content))
        except UnicodeDecodeError as error:
            raise CorruptBatch(HEADER_NAME) from error
    return tuple(found), position


def read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """A length and as many bytes, which end before `end`; and the position after them."""
    start, stop, position = read_field(data, position, end)
    return (data[start:stop] if start >= 0 else None), position


def read_field(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """The same as start and stop, which are -1 for an absent field."""
    length, position = read_varint(data, position)
    if length < 0:
        return -1, -1, position
    stop = position + length
    if stop > end:
        raise CorruptBatch(BEYOND_RECORD)
    return position, stop, stop


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zig-zag varint, and the position after it."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise CorruptBatch(NUMBER_TOO_LONG)
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch(NUMBER_TOO_LONG)


def read_int(data: Buffer, position: int) -> tuple[int, int]:
    """The same for a number of 32 bits, which has at most five bytes."""
    raw = 0
    for byte in range(_INT_BYTES_MAX):
        bits = data[position + byte]
        raw |= (bits & 0x7F) << 7 * byte
        if bits < 0x80:
            if raw >> 32:
                break
            return (raw >> 1) ^ -(raw & 1), position + byte + 1
    raise CorruptBatch(INT_TOO_LONG)


def skip_field(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """The length of a field, -1 for an absent one, and the position after it."""
    length, position = read_int(data, position)
    if length > end - position:
        raise CorruptBatch(BEYOND_RECORD)
    if length < -1:
        raise CorruptBatch(FIELD_LENGTH)
    return length, position + max(length, 0)


def skip_headers(data: Buffer, position: int, end: int) -> int:
    """Check a record's headers, and return the position after them."""
    count, position = read_int(data, position)
    if not 0 <= count <= end - position:
        raise CorruptBatch(HEADER_COUNT)
    if count > RECORD_HEADERS_MAX:
        raise CorruptBatch(HEADERS_TOO_MANY)
    for _ in range(count):
        length, position = skip_field(data, position, end)
        try:
            if length < 0:
                raise CorruptBatch(HEADER_NAME)
            str(data[position - length : position], "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptBatch(HEADER_NAME) from error
        _, position = skip_field(data, position, end)
    return position


def refusal(error: CorruptBatch | IndexError) -> CorruptBatch:
    """The refusal for invalid bytes, which may also end too early."""
    return error if isinstance(error, CorruptBatch) else CorruptBatch(BEYOND_RECORD)
