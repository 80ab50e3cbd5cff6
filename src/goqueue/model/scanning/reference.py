"""Scans the batches of a log in plain Python: the reference for `_scan.c`, and its replacement.

Both modules have the same functions and results. A scan goes through whole batches, and stops at
the end of the bytes, at a compressed batch, or at what is not the batch that must follow.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from goqueue.model.compression import Buffer
from goqueue.model.decode_fields import (
    BEYOND_BATCH,
    BYTES_LEFT,
    HEADER_COUNT,
    HEADER_NAME,
    NOT_FILLED,
    RECORD_BYTES_MIN,
    read_int,
    read_varint,
    refusal,
    skip_field,
)
from goqueue.model.errors import CorruptBatch

AT_END, AT_COMPRESSED, AT_DAMAGE = range(3)  # why a scan has stopped
KEY_SEED, TRACE_SEED = 1, 2
TRACE_DIGITS = 32

_HEADER = struct.Struct(">qiibIhi30xi")  # up to the last offset delta, and the number of records
_LENGTH_PREFIX_BYTES = 12
_MAGIC, _CODEC_MASK, _CONTROL = 2, 7, 32
_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK_32, _MASK_64 = (1 << 32) - 1, (1 << 64) - 1
_BITS_PER_HASH, _PROBES, _FILTER_BYTES_MIN = 10, 7, 8
_OFFSET_MAX = (1 << 63) - 1
# Both formats require lower case, so that a trace id can be searched for as it is.
_PARENT = re.compile(rb"..-([0-9a-f]{32})-.{19}", re.DOTALL)
_ROOT = re.compile(rb"([0-9a-f]{8})-([0-9a-f]{24})")

Field = bytes | None
# Key, trace id, name and content of a header, and text; those given must all be satisfied.
Wanted = tuple[Field, Field, Field, Field, Field]
# Where a scan has stopped, at which offset, and why; and where the last batch begins, or -1.
Stopped = tuple[int, int, int, int]
_Headers = list[tuple[bytes, Field]]
_Visit = Callable[[bytes, int, int], None]


def hash_of(content: bytes, seed: int) -> int:
    """Return 64 bits that stand for a key or a trace id."""
    value = (seed + len(content)) * _MULTIPLIER & _MASK_64
    for at in range(0, len(content), 8):
        word = int.from_bytes(content[at : at + 8], "little")
        value = (value ^ word) * _MULTIPLIER & _MASK_64
        value ^= value >> 32
    value = value * _MULTIPLIER & _MASK_64
    return value ^ value >> 29


def hashes(data: Buffer, position: int, offset: int) -> tuple[bytes, *Stopped]:
    """Hash the keys and trace ids of the batches from a position on, as 64-bit numbers.

    Also return where the scan has stopped.
    """
    found: list[bytes] = []

    def visit(payload: bytes, count: int, _: int) -> None:
        found.append(record_hashes(payload, count))

    stopped = _walk(data, position, offset, visit)
    return b"".join(found), *stopped


def record_hashes(payload: Buffer, count: int) -> bytes:
    """Hash the keys and trace ids of decompressed records."""
    found: list[int] = []
    data, at = bytes(payload), 0
    for _ in range(count):
        at, _, key, _, headers = _read(data, at)
        if key is not None:
            found.append(hash_of(key, KEY_SEED))
        for name, content in headers:
            trace = trace_of(name, content)
            if trace is not None:
                found.append(hash_of(trace, TRACE_SEED))
    if at != len(data):
        raise CorruptBatch(BYTES_LEFT)
    return struct.pack(f"={len(found)}Q", *found)


def find(
    data: Buffer,
    position: int,
    offset: int,
    key: Field,
    trace: Field,
    name: Field,
    content: Field,
    text: Field,
) -> tuple[list[int], *Stopped]:
    """Return the offsets of the records from a position on that satisfy all given conditions.

    Also return where the scan has stopped.
    """
    found: list[int] = []

    def visit(payload: bytes, count: int, base: int) -> None:
        found.extend(find_records(payload, count, base, key, trace, name, content, text))

    _check(trace)
    stopped = _walk(data, position, offset, visit)
    return found, *stopped


def find_records(
    payload: Buffer,
    count: int,
    offset: int,
    key: Field,
    trace: Field,
    name: Field,
    content: Field,
    text: Field,
) -> list[int]:
    """Return the same for decompressed records; `offset` is that of their batch."""
    _check(trace)
    data, at = bytes(payload), 0
    found: list[int] = []
    wanted = (key, trace, name, content, text)
    if _needle(wanted) not in data:
        return found
    for _ in range(count):
        at, delta, key, value, headers = _read(data, at)
        if _matches(key, value, headers, wanted):
            found.append(offset + delta)
    if at != len(data):
        raise CorruptBatch(BYTES_LEFT)
    return found


def bloom(hashes: Buffer) -> bytes:
    """Return a Bloom filter of hashes, with ten bits for each."""
    data = bytes(hashes)
    count = len(data) // 8
    size = max(_FILTER_BYTES_MIN, (count * _BITS_PER_HASH + 7) // 8)
    bits = bytearray(size)
    for (value,) in struct.iter_unpack("=Q", data[: 8 * count]):
        for bit in probes(value, size):
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def probes(value: int, size: int) -> list[int]:
    """Return which bits of a filter of so many bytes stand for a hash."""
    place, step = value & _MASK_32, value >> 32 | 1
    return [((place + probe * step) & _MASK_32) * size * 8 >> 32 for probe in range(_PROBES)]


def trace_of(name: bytes, content: Field) -> bytes | None:
    """Return the 32 digits of a trace id in a header; None if there is none."""
    if content is None:
        return None
    if name == b"traceparent":
        parent = _PARENT.match(content)
        return parent and parent[1]
    if name == b"AWSTraceHeader" and (at := content.find(b"Root=1-")) >= 0:
        root = _ROOT.match(content, at + len(b"Root=1-"))
        return root and root[1] + root[2]
    return None


def _check(trace: Field) -> None:
    if trace is not None and len(trace) != TRACE_DIGITS:
        raise ValueError("A trace id has 32 digits.")


def _needle(wanted: Wanted) -> bytes:
    """Return bytes that occur in any batch with a record that satisfies the conditions."""
    key, trace, name, content, text = wanted
    parts = (trace and trace[8:], key, name, content, text)
    return max((part or b"" for part in parts), key=len)


def _matches(key: Field, value: Field, headers: _Headers, wanted: Wanted) -> bool:
    wanted_key, trace, name, content, text = wanted
    if wanted_key is not None and key != wanted_key:
        return False
    if trace is not None and all(trace_of(*one) != trace for one in headers):
        return False
    if name is not None and not any(
        one == name and (content is None or its == content) for one, its in headers
    ):
        return False
    fields = (key, value, *(its for _, its in headers))
    return text is None or any(field is not None and text in field for field in fields)


def _walk(data: Buffer, position: int, offset: int, visit: _Visit) -> Stopped:
    last = -1
    if not 0 <= position <= len(data):
        raise ValueError("The position lies outside the bytes.")
    while len(data) - position >= _HEADER.size:
        base, length, _, magic, _, attributes, last_delta, count = _HEADER.unpack_from(
            data, position
        )
        size = length + _LENGTH_PREFIX_BYTES
        is_possible = size >= _HEADER.size and last_delta >= 0 and count >= 0
        is_next = base == offset and offset + last_delta < _OFFSET_MAX
        if not is_next or magic != _MAGIC or not is_possible:
            return position, offset, AT_DAMAGE, last
        if size > len(data) - position:
            break
        if not attributes & _CONTROL and count:
            if attributes & _CODEC_MASK:
                return position, offset, AT_COMPRESSED, last
            try:
                visit(bytes(data[position + _HEADER.size : position + size]), count, offset)
            except CorruptBatch:
                return position, offset, AT_DAMAGE, last
        last, position, offset = position, position + size, offset + last_delta + 1
    return position, offset, AT_END, last


def _read(data: bytes, at: int) -> tuple[int, int, Field, Field, _Headers]:
    """Read a record; return where it ends, its offset delta, key, value and headers."""
    try:
        length, at = read_int(data, at)
        end = at + length
        if length < RECORD_BYTES_MIN or end > len(data):
            raise CorruptBatch(BEYOND_BATCH)
        _, at = read_varint(data, at + 1)
        delta, at = read_int(data, at)
        key, at = _field(data, at, end)
        value, at = _field(data, at, end)
        headers, at = _read_headers(data, at, end)
    except IndexError as error:
        raise refusal(error) from error
    if at != end:
        raise CorruptBatch(NOT_FILLED)
    return end, delta, key, value, headers


def _read_headers(data: bytes, at: int, end: int) -> tuple[_Headers, int]:
    count, at = read_int(data, at)
    if not 0 <= count <= end - at:
        raise CorruptBatch(HEADER_COUNT)
    headers: _Headers = []
    for _ in range(count):
        name, at = _field(data, at, end)
        if name is None:
            raise CorruptBatch(HEADER_NAME)
        content, at = _field(data, at, end)
        headers.append((name, content))
    return headers, at


def _field(data: bytes, at: int, end: int) -> tuple[Field, int]:
    length, after = skip_field(data, at, end)
    return (None if length < 0 else data[after - length : after]), after
