"""Converts message sets of formats 0 and 1, as sent by clients before 2017, to one batch."""

from __future__ import annotations

import zlib
from struct import Struct
from struct import error as StructError

from goqueue.model.batch import NO_TIMESTAMP, Record, encode_batch
from goqueue.model.compression import Compression, codec_of, decompress, meter
from goqueue.model.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnsupportedFormat,
)

_ENTRY = Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_MAGIC_AT = 16
_CRC_END = 16
MESSAGES_MAX = 50_000  # in one set: each is converted in Python, which blocks other clients
_MESSAGE_BYTES_MIN = 14  # checksum, format, attributes, and two lengths


def convert_old_records(data: memoryview) -> memoryview:
    """Return a format 2 batch with the same records; a format 2 batch is returned unchanged."""
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] == 2:
        return data
    try:
        records, codec = _read_set(data, meter.bytes_max, is_nested=False)
    except (StructError, IndexError) as error:
        raise CorruptBatch("A message set ends in the middle of a message.") from error
    if not records:
        raise InvalidRecord("A produce request must bring at least one message.")
    return memoryview(encode_batch(records, codec=codec))


def _read_set(
    data: memoryview, unpacked_bytes_max: int, *, is_nested: bool
) -> tuple[list[Record], Compression]:
    records: list[Record] = []
    used = Compression.NONE
    at = 0
    while at < len(data):
        _, size, crc, magic, attributes = _ENTRY.unpack_from(data, at)
        end = at + 12 + size
        if magic not in (0, 1):
            raise UnsupportedFormat(f"Message format {magic} is not supported here.")
        if size < _MESSAGE_BYTES_MIN or end > len(data):
            raise CorruptBatch(f"A message cannot have {size} bytes here.")
        if zlib.crc32(data[at + _CRC_END : end]) != crc:
            raise CorruptBatch("The checksum of a message does not match its bytes.")
        position, timestamp = at + _ENTRY.size, NO_TIMESTAMP
        if magic == 1:
            (timestamp,) = _TIMESTAMP.unpack_from(data, position)
            position += 8
            if timestamp < NO_TIMESTAMP:
                raise InvalidTimestamp(f"A message cannot have the timestamp {timestamp}.")
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        codec = codec_of(attributes)
        if codec is Compression.NONE:
            records.append(Record(key, value, timestamp_ms=timestamp))
        elif is_nested or value is None:
            raise InvalidRecord("A compressed message set must hold plain messages.")
        else:
            used = codec
            # One limit for the whole set: many small decompression bombs are as bad as a large one.
            unpacked = decompress(codec, value, bytes_max=unpacked_bytes_max)
            unpacked_bytes_max -= len(unpacked)
            nested, _ = _read_set(memoryview(unpacked), 0, is_nested=True)
            records += nested
        if len(records) > MESSAGES_MAX:
            raise RecordTooLarge(
                f"A set of more than {MESSAGES_MAX} messages in an old format is too large; send "
                "smaller batches, or use a client that knows message format 2."
            )
        at = end
    return records, used


def _read_bytes(data: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    position += 4
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptBatch("A field of a message reaches beyond the message.")
    return bytes(data[position : position + length]), position + length
