"""Batches written by hand that break one rule each, and a Produce request to send them with.

Everything that the model's own encoder would never write can be set here: lengths that do not fit,
counts that do not match, deltas out of order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goqueue.model.batch import (
    CONTROL,
    HAS_DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    build_batch,
    encode_marker,
    varint,
)
from goqueue.model.compression import Compression, compress

from .wire import PRODUCE, Wire, connect, string

PRODUCE_VERSION = 8  # the first with errors of single records
HOUR_MS = 3_600_000
RECORD_COUNT_MAX = 2**31 - 1


# Records


def record(
    delta: int,
    *,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    shift_ms: int = 0,
    attributes: int = 0,
    key_length: int | None = None,
    value_length: int | None = None,
    header_count: int | None = None,
    headers: bytes = b"",
    added_length: int = 0,
    encoded_delta: bytes | None = None,
) -> bytes:
    """One record; a length or count that is given replaces the true one."""
    body = bytes([attributes]) + varint(shift_ms) + (encoded_delta or varint(delta))
    body += _field(key, key_length) + _field(value, value_length)
    body += varint(header_count or 0) + headers
    return varint(len(body) + added_length) + body


def header(name: bytes | None, content: bytes | None) -> bytes:
    return _field(name) + _field(content)


def _field(content: bytes | None, length: int | None = None) -> bytes:
    if length is None:
        length = -1 if content is None else len(content)
    return varint(length) + (content or b"")


def records(count: int = 3) -> bytes:
    return b"".join(record(delta) for delta in range(count))


# Batches


def batch(
    payload: bytes,
    count: int,
    now_ms: int,
    *,
    codec: Compression = Compression.NONE,
    attributes: int = 0,
    last_delta: int | None = None,
    base_ms: int | None = None,
    max_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
) -> bytearray:
    """A batch with a right checksum around whatever it is given."""
    return build_batch(
        compress(codec, payload),
        record_count=count,
        base_offset=base_offset,
        last_offset_delta=last_delta,
        attributes=attributes | codec,
        base_timestamp=now_ms if base_ms is None else base_ms,
        max_timestamp=now_ms if max_ms is None else max_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )


def _set(made: bytearray, at: int, form: str, value: int) -> bytearray:
    """The same batch with one field outside the checksum changed."""
    struct.pack_into(form, made, at, value)
    return made


Make = Callable[[int, Compression], bytes | bytearray]


def _payload(payload: bytes, count: int) -> Make:
    return lambda now, codec: batch(payload, count, now, codec=codec)


def _one(**fields: object) -> Make:
    """A batch of a good record and of one that is not."""
    return _payload(record(0) + record(1, **fields), 2)  # type: ignore[arg-type]


# What may be said of any batch, compressed or not.
RECORD_CASES: dict[str, Make] = {
    "three good records": _payload(records(3), 3),
    "a record without key, value or headers": _one(key=None, value=None),
    "more records announced than bytes": lambda now, codec: batch(
        bytes(13), RECORD_COUNT_MAX, now, codec=codec
    ),
    "as many records as an integer holds, no bytes": lambda now, codec: batch(
        b"", RECORD_COUNT_MAX, now, codec=codec
    ),
    "one record too many announced": _payload(records(3), 4),
    "one record too few announced": _payload(records(3), 2),
    "last delta too large": lambda now, codec: batch(records(3), 3, now, codec=codec, last_delta=3),
    "last delta too small": lambda now, codec: batch(records(3), 3, now, codec=codec, last_delta=1),
    "last delta negative": lambda now, codec: batch(records(3), 3, now, codec=codec, last_delta=-1),
    "no records": _payload(b"", 0),
    "no records, last delta 0": lambda now, codec: batch(b"", 0, now, codec=codec, last_delta=0),
    "no records, last delta 5": lambda now, codec: batch(b"", 0, now, codec=codec, last_delta=5),
    "count zero before records": _payload(records(3), 0),
    "count negative": lambda now, codec: batch(records(3), -1, now, codec=codec, last_delta=2),
    "bytes after the last record": _payload(records(3) + b"\0\0\0", 3),
    "deltas with a gap": _payload(record(0) + record(2), 2),
    "deltas with a gap, last delta to match": lambda now, codec: batch(
        record(0) + record(2), 2, now, codec=codec, last_delta=2
    ),
    "deltas in the wrong order": _payload(record(1) + record(0), 2),
    "deltas twice the same": _payload(record(0) + record(0), 2),
    "deltas that begin at 1": _payload(record(1) + record(2), 2),
    "delta negative": _payload(record(0) + record(-1), 2),
    "delta of more than 32 bits": _one(encoded_delta=varint(1 << 33)),
    "delta in more bytes than it needs": _one(encoded_delta=b"\x82\x00"),
    "delta in six bytes": _one(encoded_delta=b"\x82\x80\x80\x80\x80\x00"),
    "record length negative": _payload(record(0) + varint(-5) + record(1)[1:], 2),
    "record length zero": _payload(record(0) + varint(0), 2),
    "record length too small": _one(added_length=-1),
    "record length too large": _one(added_length=1),
    "record length of two gigabytes": _payload(record(0) + varint(2**31 - 1) + record(1)[1:], 2),
    "record attributes": _one(attributes=7),
    "key length -2": _one(key=b"", key_length=-2),
    "key beyond the record": _one(key_length=100),
    "key length of two gigabytes": _one(key_length=2**31 - 1),
    "value length -2": _one(value=b"", value_length=-2),
    "value beyond the record": _one(value_length=100),
    "headers": _one(header_count=1, headers=header(b"name", b"content")),
    "header count negative": _one(header_count=-1),
    "header count too large": _one(header_count=2, headers=header(b"name", b"content")),
    "header count of two billion": _one(header_count=2**31 - 1),
    "header count too small": _one(
        header_count=1, headers=header(b"a", b"content") + header(b"b", b"content")
    ),
    "header without a name": _one(header_count=1, headers=header(None, b"content")),
    "header name -2": _one(header_count=1, headers=varint(-2) + _field(b"content")),
    "header name not UTF-8": _one(header_count=1, headers=header(b"\xff\xfe", b"content")),
    "header name empty": _one(header_count=1, headers=header(b"", b"content")),
    "header content null": _one(header_count=1, headers=header(b"name", None)),
    "header content -2": _one(header_count=1, headers=_field(b"name") + varint(-2)),
    "header content beyond the record": _one(
        header_count=1, headers=_field(b"name") + varint(50) + b"content"
    ),
    "record times later than the batch's": lambda now, codec: batch(
        record(0) + record(1, shift_ms=1000), 2, now - 5000, codec=codec
    ),
    "batch time later than its records'": lambda now, codec: batch(
        records(2), 2, now, codec=codec, base_ms=now - 5000, max_ms=now
    ),
    "batch time in the far future, not its records'": lambda now, codec: batch(
        records(2), 2, now, codec=codec, max_ms=now + 48 * HOUR_MS
    ),
    "record time in the far future, not its batch's": lambda now, codec: batch(
        record(0) + record(1, shift_ms=48 * HOUR_MS), 2, now, codec=codec
    ),
    "record time before the batch's base": lambda now, codec: batch(
        record(0) + record(1, shift_ms=-1000), 2, now, codec=codec
    ),
    "record times out of 64 bits": lambda now, codec: batch(
        record(0) + record(1, shift_ms=2**62), 2, now, codec=codec, base_ms=2**62
    ),
    "record time negative": lambda now, codec: batch(
        record(0) + record(1, shift_ms=-now - 5), 2, now, codec=codec
    ),
    "no times": lambda now, codec: batch(records(2), 2, now, codec=codec, base_ms=-1, max_ms=-1),
    "no times, with shifts": lambda now, codec: batch(
        record(0) + record(1, shift_ms=1000), 2, now, codec=codec, base_ms=-1, max_ms=-1
    ),
    "times negative": lambda now, codec: batch(
        records(2), 2, now, codec=codec, base_ms=-1000, max_ms=-1000
    ),
    "times at the epoch": lambda now, codec: batch(
        records(2), 2, now, codec=codec, base_ms=0, max_ms=0
    ),
    "an hour and a minute ahead": lambda now, codec: batch(
        records(2), 2, now + HOUR_MS + 60_000, codec=codec
    ),
    "59 minutes ahead": lambda now, codec: batch(
        records(2), 2, now + HOUR_MS - 60_000, codec=codec
    ),
    "base offset 7": lambda now, codec: batch(records(3), 3, now, codec=codec, base_offset=7),
    "control bit": lambda now, codec: batch(records(1), 1, now, codec=codec, attributes=CONTROL),
    "delete horizon bit": lambda now, codec: batch(
        records(3), 3, now, codec=codec, attributes=HAS_DELETE_HORIZON
    ),
    "unknown attribute bit 7": lambda now, codec: batch(
        records(3), 3, now, codec=codec, attributes=0x80
    ),
    "unknown attribute bit 14": lambda now, codec: batch(
        records(3), 3, now, codec=codec, attributes=0x4000
    ),
    "append time set by the producer": lambda now, codec: batch(
        records(3), 3, now, codec=codec, attributes=LOG_APPEND_TIME
    ),
    "transactional without a producer": lambda now, codec: batch(
        records(3), 3, now, codec=codec, attributes=TRANSACTIONAL
    ),
    "producer without an epoch": lambda now, codec: batch(
        records(3), 3, now, codec=codec, producer=(4000, -1, 0)
    ),
    "producer without a sequence": lambda now, codec: batch(
        records(3), 3, now, codec=codec, producer=(4001, 0, -1)
    ),
    "epoch and sequence without a producer": lambda now, codec: batch(
        records(3), 3, now, codec=codec, producer=(-1, 0, 0)
    ),
    "unknown producer from sequence 0": lambda now, codec: batch(
        records(3), 3, now, codec=codec, producer=(4002, 0, 0)
    ),
}

# What is said of the frame of a batch, whatever is in it.
FRAME_CASES: dict[str, Make] = {
    "a marker": lambda now, codec: encode_marker(
        is_commit=True, producer_id=4003, producer_epoch=0, coordinator_epoch=0, timestamp_ms=now
    ),
    "magic 3": lambda now, codec: _set(batch(records(3), 3, now), 16, ">b", 3),
    "magic -1": lambda now, codec: _set(batch(records(3), 3, now), 16, ">b", -1),
    "a message of format 0": lambda now, codec: _old_message(0, now),
    "a message of format 1": lambda now, codec: _old_message(1, now),
    "wrong checksum": lambda now, codec: _set(batch(records(3), 3, now), 17, ">I", 1),
    "length too small": lambda now, codec: _length(batch(records(3), 3, now), -1),
    "length too large": lambda now, codec: _length(batch(records(3), 3, now), 1),
    "length below a header's": lambda now, codec: _set(batch(records(3), 3, now), 8, ">i", 20),
    "length negative": lambda now, codec: _set(batch(records(3), 3, now), 8, ">i", -1),
    "two batches": lambda now, codec: batch(records(3), 3, now) + batch(records(3), 3, now),
    "a batch and loose bytes": lambda now, codec: batch(records(3), 3, now) + bytes(5),
    "a batch cut short": lambda now, codec: batch(records(3), 3, now)[:70],
    "ten bytes": lambda now, codec: bytes(10),
    "no bytes": lambda now, codec: b"",
    "codec 5": lambda now, codec: batch(records(3), 3, now, attributes=5),
    "codec 7": lambda now, codec: batch(records(3), 3, now, attributes=7),
    "a key missing": lambda now, codec: batch(record(0) + record(1, key=None), 2, now),
    "a key missing, compressed": lambda now, codec: batch(
        record(0) + record(1, key=None), 2, now, codec=Compression.ZSTD
    ),
    "keys empty": lambda now, codec: batch(record(0) + record(1, key=b""), 2, now),
}


def _old_message(magic: int, now: int) -> bytes:
    """A message set as clients before 2017 sent it."""
    time = struct.pack(">q", now) if magic else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">i3si5s", 3, b"key", 5, b"value")
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def _length(made: bytearray, added: int) -> bytearray:
    return _set(made, 8, ">i", len(made) - 12 + added)


def _damaged(codec: Compression, now: int) -> bytearray:
    packed = bytearray(compress(codec, records(300)))
    packed[len(packed) // 2] ^= 0xFF
    return _packed(codec, bytes(packed), 300, now)


def _packed(codec: Compression, packed: bytes, count: int, now: int) -> bytearray:
    return build_batch(
        packed, record_count=count, attributes=codec, base_timestamp=now, max_timestamp=now
    )


# How compressed bytes begin; those of lz4 and zstd say that their size follows.
PACKED_HEADS = {
    Compression.GZIP: b"\x1f\x8b\x08\0",
    Compression.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
    Compression.LZ4: b"\x04\x22\x4d\x18\x68\x40",
    Compression.ZSTD: b"\x28\xb5\x2f\xfd\xe0",
}
# What is said of compressed bytes.
PACKED_CASES: dict[str, Make] = {
    "damaged": lambda now, codec: _damaged(codec, now),
    "cut short": lambda now, codec: _packed(codec, compress(codec, records(300))[:-9], 300, now),
    "garbage": lambda now, codec: _packed(codec, b"garbage" * 20, 3, now),
    "garbage behind a header": lambda now, codec: _packed(
        codec, PACKED_HEADS[codec] + b"garbage" * 20, 3, now
    ),
    "nothing": lambda now, codec: _packed(codec, b"", 3, now),
    "nothing for 2 billion": lambda now, codec: _packed(codec, b"", RECORD_COUNT_MAX, now),
    "bytes behind it": lambda now, codec: _packed(
        codec, compress(codec, records(3)) + b"behind", 3, now
    ),
}


# Produce


@dataclass(frozen=True, slots=True)
class Produced:
    """What a broker answers to one batch for one partition."""

    error: int
    base_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    message: str | None = None


def produce(wire: Wire, topic: str, data: bytes | bytearray, *, acks: int = -1) -> Produced:
    """Send one batch and wait for the answer."""
    wire.request(PRODUCE, PRODUCE_VERSION, produce_v8(topic, data, acks=acks))
    return _produced_v8(wire.answer()[1])


def produce_all(bootstrap: str, topic: str, batches: Sequence[bytes]) -> list[Produced]:
    """Send batches one by one over one connection."""
    with connect(bootstrap) as wire:
        return [produce(wire, topic, data) for data in batches]


def produce_v8(topic: str, data: bytes | bytearray, *, acks: int) -> bytes:
    """The body of a Produce request for partition 0 of one topic."""
    start = struct.pack(">hhii", -1, acks, 30_000, 1) + string(topic)
    return start + struct.pack(">iii", 1, 0, len(data)) + data


def _produced_v8(body: bytes) -> Produced:
    (name_bytes,) = struct.unpack_from(">h", body, 4)
    at = 4 + 2 + name_bytes + 4
    _, error, base_offset, _, _, count = struct.unpack_from(">ihqqqi", body, at)
    at += 34
    errors = []
    for _ in range(count):
        (index,) = struct.unpack_from(">i", body, at)
        text, at = _text(body, at + 4)
        errors.append((index, text))
    message, at = _text(body, at)
    return Produced(error, base_offset, tuple(errors), message)


def _text(body: bytes, at: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", body, at)
    if size < 0:
        return None, at + 2
    return body[at + 2 : at + 2 + size].decode(), at + 2 + size
