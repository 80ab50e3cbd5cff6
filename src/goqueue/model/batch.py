"""Record batches: the one format of records on disk and on the wire.

A batch is a 61-byte header and its records, byte for byte what a producer sends and a consumer
fetches. The broker works on the header: one checksum, one base offset to stamp, no records
decoded. Records are decoded only if a feature needs a particular record.

    base_offset int64 · batch_length int32 · leader_epoch int32 · magic int8 · crc uint32 ·
    attributes int16 · last_offset_delta int32 · base_timestamp int64 · max_timestamp int64 ·
    producer_id int64 · producer_epoch int16 · base_sequence int32 · record_count int32

The checksum (CRC-32C) covers everything from `attributes` on, so that stamping the base offset
and the leader epoch leaves it valid.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from goqueue.model.compression import (
    Buffer,
    Compression,
    codec_of,
    compress,
    decompress,
)
from goqueue.model.decoding import decoder
from goqueue.model.errors import (
    CorruptBatch,
    InvalidRecord,
    UnpacksTooLarge,
    UnsupportedCompression,
    UnsupportedFormat,
)
from goqueue.model.tenants import Text

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_PREFIX_BYTES = 12  # base_offset and batch_length, which batch_length excludes
CRC_START = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
HAS_DELETE_HORIZON = 0x40

NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_EPOCH = -1

RECORDS_MAX = 2_000_000  # in one batch: indexing them takes memory in addition to their bytes
STEP_RECORDS = 256  # decoded at once, so that a reader that stops early has paid for few

_NO_HEADER = bytes(HEADER_BYTES)
_CRC = struct.Struct(">I")
_STAMP_OFFSET = struct.Struct(">q")
_STAMP_EPOCH = struct.Struct(">i")

_MARKER_KEY = struct.Struct(">hh")  # version, kind
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_MARKER_VERSION = 0
_ABORT, _COMMIT = 0, 1

Header = tuple[Text, bytes | None]


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Compression:
        return codec_of(self.attributes)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & HAS_DELETE_HORIZON)


class Record(NamedTuple):
    """One stored record, with the offset and timestamp its batch gives it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = -1


def add_sequence(sequence: int, count: int) -> int:
    """Add to a sequence number, which has 31 bits and wraps to zero."""
    return (sequence + count) & 0x7FFFFFFF


def is_sequence_before(sequence: int, other: int) -> bool:
    """Whether a sequence number comes before another of the same producer and epoch."""
    return 0 < (other - sequence) & 0x7FFFFFFF < 1 << 30


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller has checked that its 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(data, position))


def check_batch(data: Buffer) -> BatchHeader:
    """Return the header of `data`, which must be exactly one intact batch of this format."""
    if len(data) < HEADER_BYTES:
        raise CorruptBatch(f"A batch has {len(data)} bytes; its header alone has {HEADER_BYTES}.")
    header = read_header(data)
    check_header(header, data)
    return header


def check_header(header: BatchHeader, data: Buffer) -> None:
    """The same for a batch whose header has been decoded already."""
    if header.magic != MAGIC:
        raise UnsupportedFormat(f"Batch format {header.magic} is not supported; send format 2.")
    if header.size != len(data):
        raise CorruptBatch(f"A batch of {len(data)} bytes declares a size of {header.size}.")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise InvalidRecord("A batch has a negative record count.")
    if crc32c(memoryview(data)[CRC_START:]) != header.crc:
        raise CorruptBatch("The checksum of a batch does not match its bytes; send it again.")


def is_intact(data: memoryview, header: BatchHeader) -> bool:
    """Whether the bytes of one whole batch match its checksum."""
    return crc32c(data[CRC_START : header.size]) == header.crc


def stamp(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of a batch. The checksum stays valid."""
    _STAMP_OFFSET.pack_into(batch, 0, base_offset)
    _STAMP_EPOCH.pack_into(batch, 12, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Set the append time as the timestamp of every record, and update the checksum."""
    (attributes,) = struct.unpack_from(">h", batch, CRC_START)
    struct.pack_into(">h", batch, CRC_START, attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", batch, 35, timestamp_ms)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))


def stamp_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Correct the maximum timestamp of a batch, and update the checksum."""
    struct.pack_into(">q", batch, 35, timestamp_ms)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))


def build_batch(
    payload: Buffer,
    *,
    record_count: int,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    leader_epoch: int = NO_EPOCH,
    attributes: int = 0,
    base_timestamp: int = NO_TIMESTAMP,
    max_timestamp: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Prepend a header to records that are already encoded (and already compressed)."""
    return _build_batch(
        (payload,),
        base_offset,
        leader_epoch,
        attributes,
        record_count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def _build_batch(
    parts: Sequence[Buffer], base_offset: int, leader_epoch: int, attributes: int, *fields: int
) -> bytearray:
    """Build a batch of these bytes, copied once; `fields` are those after the attributes."""
    batch = bytearray().join((_NO_HEADER, *parts))
    _pack_header(batch, base_offset, leader_epoch, attributes, *fields)
    return batch


def fill_header(
    batch: bytearray,
    *,
    record_count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Write the header of a batch into the space reserved before its records."""
    _pack_header(
        batch,
        0,
        NO_EPOCH,
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def _pack_header(
    batch: bytearray, base_offset: int, leader_epoch: int, attributes: int, *fields: int
) -> None:
    length = len(batch) - LENGTH_PREFIX_BYTES
    HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, attributes, *fields)
    with memoryview(batch) as view:
        _CRC.pack_into(batch, 17, crc32c(view[CRC_START:]))


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Compression = Compression.NONE,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """Encode records, numbered from zero in the order given, as one batch."""
    if not records:
        raise InvalidRecord("A batch needs at least one record.")
    if is_transactional:
        attributes |= TRANSACTIONAL
    base_timestamp = records[0].timestamp_ms
    parts: Sequence[Buffer] = _encode_parts(enumerate(records), base_timestamp)
    if codec is not Compression.NONE:
        parts = (compress(codec, b"".join(parts)),)
    return _build_batch(
        parts,
        base_offset,
        leader_epoch,
        attributes | codec,
        len(records) - 1,
        base_timestamp,
        max([record.timestamp_ms for record in records]),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )


class Marker(NamedTuple):
    """The end of a transaction, as recorded by a control record."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    *,
    is_commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """Encode the control batch that ends a producer's transaction in one partition."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, _COMMIT if is_commit else _ABORT)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch)
    return encode_batch(
        [Record(key, value, (), timestamp_ms)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def decode_marker(batch: Buffer) -> Marker:
    """Decode a control batch; raise `CorruptBatch` if it does not end a transaction."""
    records = decode_batch(batch)
    if len(records) != 1:
        raise CorruptBatch(f"A control batch has {len(records)} records; it should have one.")
    key, value = records[0].key or b"", records[0].value or b""
    if len(key) < _MARKER_KEY.size or len(value) < _MARKER_VALUE.size:
        raise CorruptBatch("A control record is too short to end a transaction.")
    _, kind = _MARKER_KEY.unpack_from(key)
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if kind not in (_ABORT, _COMMIT):
        raise CorruptBatch(f"A control record of kind {kind} does not end a transaction.")
    return Marker(kind == _COMMIT, coordinator_epoch)


def encode_records(numbered: Iterable[tuple[int, Record]], *, base_timestamp: int) -> bytes:
    """Encode records; each comes with its offset relative to the batch."""
    return b"".join(_encode_parts(numbered, base_timestamp))


def _encode_parts(numbered: Iterable[tuple[int, Record]], base_timestamp: int) -> list[bytes]:
    """The parts to join into the records' bytes, so that values are copied only once."""
    parts: list[bytes] = []
    for delta, (key, value, headers, timestamp_ms, _) in numbered:
        shift, place = varint(timestamp_ms - base_timestamp), varint(delta)
        size = 1 + len(shift) + len(place)
        key_length = value_length = _NOTHING
        if key is None:
            key = b""
        else:
            key_length = varint(len(key))
            size += len(key)
        if value is None:
            value = b""
        else:
            value_length = varint(len(value))
            size += len(value)
        packed = _encode_headers(headers) if headers else b"\x00"
        size += len(key_length) + len(value_length) + len(packed)
        parts += (varint(size), b"\x00", shift, place, key_length, key, value_length, value, packed)
    return parts


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts.append(_NOTHING if content is None else varint(len(content)) + content)
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Encode a zig-zag varint; common small ones come from a table."""
    if -8192 <= value < 8192:
        return _SMALL_VARINTS[value + 8192]
    return _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_NOTHING = b"\x01"  # the length of an absent field: minus one
_SMALL_VARINTS = [_encode_varint(value) for value in range(-8192, 8192)]


def decode_batch(data: Buffer) -> list[Record]:
    """Decode all records of one whole batch, whose checksum the caller has verified."""
    header = read_header(data)
    return list(decode_records(header, unpack_payload(data, header)))


def unpack_payload(data: Buffer, header: BatchHeader, *, bytes_max: int | None = None) -> Buffer:
    """The decompressed records of a batch, up to `bytes_max` or else the bound of the process."""
    payload = memoryview(data)[HEADER_BYTES : header.size]
    if not header.attributes & CODEC_MASK:
        return payload
    return decompress(header.codec, payload, bytes_max=bytes_max)


def produced_payload(data: Buffer) -> Buffer | None:
    """The same of a producer's bytes that have not been checked yet.

    None if they cannot be decompressed; the check of the batch reports why.
    """
    if len(data) < HEADER_BYTES:
        return None
    header = read_header(data)
    payload = memoryview(data)[HEADER_BYTES:]
    if not header.attributes & CODEC_MASK:
        return payload
    try:
        return decompress(header.codec, payload)
    except UnpacksTooLarge:
        raise
    except (CorruptBatch, UnsupportedCompression):
        return None


def decode_records(header: BatchHeader, payload: Buffer) -> Iterator[Record]:
    """Decode records a step at a time; raise `CorruptBatch` if the bytes are invalid."""
    data = bytes(payload)
    del payload  # else both stay alive until the last record is decoded
    position, left = 0, header.record_count
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    while left > 0:
        records, position = decoder.records(
            data,
            position,
            min(left, STEP_RECORDS),
            header.base_offset,
            header.base_timestamp,
            append_time,
            Record,
        )
        yield from records
        left -= len(records)
    _check_end(data, position)


class RawRecord(NamedTuple):
    """One record as it is stored, with the fields found without decoding its value."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool
    data: bytes  # the whole record, including its length
    rest_start: int  # where in `data` the offset delta begins


def split_records(header: BatchHeader, payload: Buffer) -> Iterator[RawRecord]:
    """Split into records, as bytes; raise `CorruptBatch` if the bytes are invalid."""
    data = bytes(payload)
    del payload
    position, left = 0, header.record_count
    while left > 0:
        records, position = decoder.raw_records(data, position, min(left, STEP_RECORDS), RawRecord)
        yield from records
        left -= len(records)
    _check_end(data, position)


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise CorruptBatch("A batch has bytes left after its last record.")


def shift_timestamp(record: RawRecord, shift_ms: int) -> bytes:
    """Re-encode a record for a batch whose base timestamp is `shift_ms` earlier."""
    body = b"\x00" + varint(record.timestamp_delta + shift_ms) + record.data[record.rest_start :]
    return varint(len(body)) + body
