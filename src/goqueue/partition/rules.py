"""What a batch must be like before a partition takes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.model.batch import (
    CODEC_MASK,
    CONTROL,
    HAS_DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    build_batch,
    check_batch,
    decode_records,
    unpack_payload,
)
from goqueue.model.compression import Compression, codec_of, compress
from goqueue.model.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from goqueue.storage.log import LogSettings

TIMESTAMP_AFTER_MAX_MS = 3600 * 1000
RUN_SEGMENT_BYTES_MIN = 1 << 20

_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1

RunLimits = tuple[int, int, int]  # bytes of a batch, its earliest time and its latest


@dataclass(slots=True)
class PartitionSettings:
    """What a topic's settings mean for one of its partitions."""

    log: LogSettings = field(default_factory=LogSettings)
    message_bytes_max: int = 1048588
    is_append_time: bool = False
    compression: Compression | None = None  # None: as the producer sent it
    timestamp_before_ms_max: int = (1 << 63) - 1
    timestamp_after_ms_max: int = TIMESTAMP_AFTER_MAX_MS
    has_attributes: bool = True  # headers that begin with "goqueue-" mean something
    has_schemas: bool = False  # records must obey schemas of the registry

    @property
    def keeps_bytes(self) -> bool:
        """Whether a batch whose header and checksum are right is stored just as it came."""
        return not (
            self.is_append_time
            or self.has_schemas
            or self.compression is not None
            or self.log.is_compacting
        )


def check_produced(batch: memoryview, settings: PartitionSettings, *, now_ms: int) -> BatchHeader:
    """The header of a producer's batch; raise when the batch may not be stored."""
    header = check_batch(batch)
    if len(batch) > settings.message_bytes_max:
        raise RecordTooLarge(
            f"A batch of {len(batch)} bytes is over the topic's limit of "
            f"{settings.message_bytes_max}; send smaller batches or raise max.message.bytes."
        )
    if header.record_count != header.last_offset_delta + 1 or header.record_count == 0:
        raise InvalidRecord(
            f"A batch of {header.record_count} records ends at offset {header.last_offset_delta}."
        )
    if header.attributes & (CONTROL | HAS_DELETE_HORIZON):
        raise InvalidRecord("Control batches are written by the broker alone.")
    if header.attributes & TRANSACTIONAL and header.producer_id < 0:
        raise InvalidRecord("A batch of a transaction needs a producer id.")
    codec_of(header.attributes)
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord("A batch with a producer id needs an epoch and a sequence number.")
    if not settings.is_append_time and header.max_timestamp != NO_TIMESTAMP:
        _check_time(header, settings, now_ms)
    if settings.log.is_compacting:
        _check_keys(batch, header)
    return header


def run_limits(settings: PartitionSettings, *, now_ms: int) -> RunLimits | None:
    """What batches must keep to that are stored just as they came; None: each needs a closer look.

    Small segments would be much larger than they should be if several batches were one write.
    """
    if settings.log.segment_bytes < RUN_SEGMENT_BYTES_MIN or not settings.keeps_bytes:
        return None
    return (
        settings.message_bytes_max,
        max(now_ms - settings.timestamp_before_ms_max, _TIME_MIN),
        min(now_ms + settings.timestamp_after_ms_max, _TIME_MAX),
    )


def recompress(batch: memoryview, header: BatchHeader, codec: Compression) -> bytearray:
    """The same batch with its records packed by another codec."""
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


def _check_time(header: BatchHeader, settings: PartitionSettings, now_ms: int) -> None:
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("A producer may not mark its batch with the broker's append time.")
    if header.max_timestamp - now_ms > settings.timestamp_after_ms_max:
        raise InvalidTimestamp(
            f"A timestamp lies {header.max_timestamp - now_ms} ms in the future; the topic allows "
            f"{settings.timestamp_after_ms_max}."
        )
    if now_ms - header.base_timestamp > settings.timestamp_before_ms_max:
        raise InvalidTimestamp(
            f"A timestamp lies {now_ms - header.base_timestamp} ms in the past; the topic allows "
            f"{settings.timestamp_before_ms_max}."
        )


def _check_keys(batch: memoryview, header: BatchHeader) -> None:
    assert len(batch) >= HEADER_BYTES
    for record in decode_records(header, unpack_payload(batch, header)):
        if record.key is None:
            raise InvalidRecord(
                "A compacted topic keeps the last record of each key, so each record needs a key."
            )
