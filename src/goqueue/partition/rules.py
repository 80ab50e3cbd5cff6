"""Validation of batches before a partition stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from goqueue.model.batch import (
    CODEC_MASK,
    CONTROL,
    HAS_DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    RECORDS_MAX,
    TRANSACTIONAL,
    BatchHeader,
    build_batch,
    is_intact,
    read_header,
    stamp_max_timestamp,
    unpack_payload,
)
from goqueue.model.columns import decode_columns
from goqueue.model.compression import Buffer, Compression, codec_of, compress
from goqueue.model.decoding import decoder
from goqueue.model.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnpacksTooLarge,
)
from goqueue.storage.log import LogSettings

TIMESTAMP_AFTER_MAX_MS = 3600 * 1000
RUN_SEGMENT_BYTES_MIN = 1 << 20
FAULTS_MAX = 100  # records of a batch that an error lists individually

RunLimits = tuple[int, int, int]  # bytes of a batch, its earliest timestamp and its latest


class KeyFiltering(StrEnum):
    """When filters of keys and trace ids are built, which make searches fast."""

    OFF = "off"
    SEARCH = "search"  # by the first search of what has none yet
    ALWAYS = "always"  # and in the background


@dataclass(slots=True)
class PartitionSettings:
    """The settings of a topic as they apply to one of its partitions."""

    log: LogSettings = field(default_factory=LogSettings)
    message_bytes_max: int = 1048588
    is_append_time: bool = False
    compression: Compression | None = None  # None: as the producer sent it
    timestamp_before_ms_max: int = (1 << 63) - 1
    timestamp_after_ms_max: int = TIMESTAMP_AFTER_MAX_MS
    has_attributes: bool = True  # headers with the prefix "goqueue-" are interpreted
    has_schemas: bool = False  # records must conform to schemas of the registry
    key_filters: KeyFiltering = KeyFiltering.SEARCH

    # Batches with a valid header and checksum are stored unchanged, several with one write. Small
    # segments would exceed their size by far.
    takes_runs: bool = field(init=False)

    def __post_init__(self) -> None:
        needs_inspection = (
            self.is_append_time
            or self.has_schemas
            or self.compression is not None
            or self.log.is_compacting
        )
        has_room = self.log.segment_bytes >= RUN_SEGMENT_BYTES_MIN
        self.takes_runs = has_room and not needs_inspection


def check_produced(
    batch: memoryview,
    settings: PartitionSettings,
    *,
    now_ms: int,
    payload: Buffer | None = None,
) -> BatchHeader:
    """Return the header of a producer's batch; raise if the batch may not be stored.

    `payload` is its decompressed records, if the caller has them. If the header's timestamp is not
    that of the newest record, it is corrected, with a new checksum.
    """
    header = _check_frame(batch)
    if len(batch) > settings.message_bytes_max:
        raise RecordTooLarge(
            f"A batch of {len(batch)} bytes is over the topic's limit of "
            f"{settings.message_bytes_max}; send smaller batches or raise max.message.bytes."
        )
    _check_header(header)
    if payload is None:
        payload = _unpacked(batch, header)
    checked = _check_records(header, payload)
    if header.record_count > RECORDS_MAX:
        raise RecordTooLarge(
            f"A batch of {header.record_count} records is over the limit of {RECORDS_MAX}; send "
            "smaller batches."
        )
    if settings.log.is_compacting and checked.first_without_key >= 0:
        raise InvalidRecord(
            "A compacted topic keeps the last record of each key, so each record needs a key.",
            _without_key(header, payload, checked.first_without_key),
        )
    if settings.is_append_time:
        return header
    _check_times(header, payload, checked, settings, now_ms)
    if checked.newest_ms != header.max_timestamp:
        stamp_max_timestamp(batch, checked.newest_ms)
        return read_header(batch)
    return header


def recompress(batch: memoryview, header: BatchHeader, codec: Compression) -> bytearray:
    """Return the same batch with its records compressed by another codec."""
    payload = unpack_payload(batch, header)
    return build_batch(
        compress(codec, payload),
        record_count=header.record_count,
        attributes=header.attributes & ~CODEC_MASK | codec,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _without_key(header: BatchHeader, payload: Buffer, first: int) -> dict[int, str]:
    """Return the records without a key, up to the number that an error lists."""
    keys = decode_columns(header, payload).keys(range(first, header.record_count))
    places = (first + index for index, key in enumerate(keys) if key is None)
    return dict.fromkeys(islice(places, FAULTS_MAX), "The record has no key.")


class _Checked(NamedTuple):
    """Result of the check of a batch's records; -1 for none."""

    first_without_key: int
    oldest_ms: int
    newest_ms: int


def _check_frame(batch: memoryview) -> BatchHeader:
    """Return the header of exactly one complete batch with a valid checksum."""
    if len(batch) < HEADER_BYTES:
        raise InvalidRecord(f"A batch has {len(batch)} bytes; its header alone has {HEADER_BYTES}.")
    header = read_header(batch)
    if header.magic in (0, 1):
        raise InvalidRecord(f"Batch format {header.magic} is not supported here; send format 2.")
    if header.magic != MAGIC:
        raise CorruptBatch(f"There is no batch format {header.magic}; send format 2.")
    if header.size < HEADER_BYTES:
        raise CorruptBatch(f"A batch cannot have {header.size} bytes.")
    if header.size > len(batch):
        raise InvalidRecord(f"A batch of {header.size} bytes was truncated to {len(batch)}.")
    if not is_intact(batch, header):
        raise CorruptBatch("The checksum of a batch does not match its bytes; send it again.")
    if header.size < len(batch):
        raise InvalidRecord("A produce request must have one batch for each of its partitions.")
    return header


def _check_header(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(
            f"A producer's batch begins at offset {header.base_offset}; it must begin at 0."
        )
    if header.record_count != header.last_offset_delta + 1 or header.record_count <= 0:
        raise InvalidRecord(
            f"A batch of {header.record_count} records ends at offset {header.last_offset_delta}."
        )
    if header.attributes & (CONTROL | HAS_DELETE_HORIZON):
        raise InvalidRecord("Control batches are written only by the broker.")
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("A producer may not mark its batch with the broker's append time.")
    if header.attributes & TRANSACTIONAL and header.producer_id < 0:
        raise InvalidRecord("A batch of a transaction needs a producer id.")
    codec_of(header.attributes)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord("A batch with a producer id needs an epoch and a sequence number.")


def _unpacked(batch: memoryview, header: BatchHeader) -> Buffer:
    try:
        return unpack_payload(batch, header)
    except UnpacksTooLarge:
        raise
    except CorruptBatch as error:
        raise InvalidRecord(f"The records of a batch cannot be unpacked: {error}") from error


def _check_records(header: BatchHeader, payload: Buffer) -> _Checked:
    """Read all records, so that nothing is stored that a consumer could not read."""
    try:
        return _Checked._make(
            decoder.check_records(payload, 0, header.record_count, header.base_timestamp, False)
        )
    except CorruptBatch as error:
        raise InvalidRecord(f"The records of a batch cannot be read: {error}") from error


def _check_times(
    header: BatchHeader,
    payload: Buffer,
    checked: _Checked,
    settings: PartitionSettings,
    now_ms: int,
) -> None:
    """Refuse timestamps outside the topic's bounds, and list the records that have them."""
    latest = now_ms + settings.timestamp_after_ms_max
    earliest = now_ms - settings.timestamp_before_ms_max
    is_late = checked.newest_ms > latest
    if not is_late and (checked.oldest_ms == NO_TIMESTAMP or checked.oldest_ms >= earliest):
        return
    faults = (
        (index, f"The timestamp {time_ms} is not between {earliest} and {latest}.")
        for index, time_ms in enumerate(decode_columns(header, payload).timestamps)
        if time_ms != NO_TIMESTAMP and not earliest <= time_ms <= latest
    )
    distance, side, setting = (
        (checked.newest_ms - now_ms, "future", settings.timestamp_after_ms_max)
        if is_late
        else (now_ms - checked.oldest_ms, "past", settings.timestamp_before_ms_max)
    )
    raise InvalidTimestamp(
        f"A timestamp lies {distance} ms in the {side}; the topic allows {setting}.",
        dict(islice(faults, FAULTS_MAX)),
    )
