"""Delayed records: found in a producer's batch, validated, and converted to scheduled messages.

The records of a batch that are due now become a batch that spans all offsets of the original and
lacks the delayed records, as after compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.broker.topics.topics import Topic
from goqueue.delivery.schedules import PARTITION_OPEN, ProducerBatch, ScheduledMessage
from goqueue.model.attributes import (
    DELAY_HEADER,
    DELIVER_AT_HEADER,
    SCHEDULE_ID_HEADER,
    check_due,
    parse_attributes,
)
from goqueue.model.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    Header,
    Record,
    build_batch,
    decode_records,
    encode_records,
    unpack_payload,
)
from goqueue.model.compression import Compression, compress
from goqueue.model.errors import InvalidRecord, InvalidRequest, RecordTooLarge
from goqueue.partition import Partition
from goqueue.partition.rules import check_produced

HEADERS_MAX = 50_000  # of all records in a batch with delays, which is split in one turn

_RECORD_OVERHEAD_BYTES = 32
_OWN_HEADERS = frozenset({DELAY_HEADER, DELIVER_AT_HEADER, SCHEDULE_ID_HEADER})


class Delayed(NamedTuple):
    """A record with a due time; without a partition, one is chosen at release."""

    record: Record
    due_ms: int
    partition: int = PARTITION_OPEN


def to_messages(
    topic: Topic, delayed: Sequence[Delayed], *, now_ms: int, origin: ProducerBatch | None = None
) -> list[ScheduledMessage]:
    """Convert the records of one call; one invalid record refuses them all."""
    if not delayed:
        raise InvalidRequest("There is nothing to schedule; send at least one record.")
    check_due(max(one.due_ms for one in delayed), now_ms=now_ms)
    for partition in {one.partition for one in delayed}:
        if partition != PARTITION_OPEN:
            topic.partition(partition)
    size_max = topic.settings.message_bytes_max - HEADER_BYTES - _RECORD_OVERHEAD_BYTES
    needs_key = topic.settings.log.is_compacting
    topic_id, name = topic.id, topic.name
    messages: list[ScheduledMessage] = []
    for (key, value, headers, timestamp_ms, _), due_ms, partition in delayed:
        size = (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        if size > size_max:
            raise _too_large(topic, size)
        if key is None and needs_key:
            raise InvalidRecord(f"Topic {name!r} is compacted; give each record a key.")
        if headers:
            # Most have exactly one header, which requests the delay and is not delivered.
            is_only = len(headers) == 1 and headers[0][0] in _OWN_HEADERS
            headers = () if is_only else _delivered(headers)
        messages.append(
            ScheduledMessage(
                due_ms, topic_id, name, partition, key, value, headers, timestamp_ms, origin
            )
        )
    return messages


def _delivered(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    return tuple([header for header in headers if header[0] not in _OWN_HEADERS])


def _too_large(topic: Topic, size: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"A record of {size + _RECORD_OVERHEAD_BYTES} bytes is over the limit of topic "
        f"{topic.name!r}, {topic.settings.message_bytes_max} bytes for a batch; send a smaller one."
    )


# Batches of producers


class SplitBatch(NamedTuple):
    """A producer's batch, split."""

    header: BatchHeader
    now: list[tuple[int, Record]]  # with their positions in the batch
    later: list[Delayed]


def split_batch(partition: Partition, batch: memoryview, *, now_ms: int) -> SplitBatch:
    """Separate the records of a producer's batch that are due now from the delayed ones."""
    header = check_produced(batch, partition.settings, now_ms=now_ms)
    now: list[tuple[int, Record]] = []
    later: list[Delayed] = []
    header_count = 0
    for index, record in enumerate(decode_records(header, unpack_payload(batch, header))):
        header_count += len(record.headers)
        if header_count > HEADERS_MAX:
            raise RecordTooLarge(
                f"A batch with delays or priorities may have {HEADERS_MAX} headers in all its "
                "records; send smaller batches."
            )
        due_ms = parse_attributes(record.headers).due_ms(now_ms) if record.headers else None
        if due_ms is None:
            now.append((index, record))
        else:
            later.append(Delayed(record, due_ms, partition.name.partition))
    return SplitBatch(header, now, later)


def batch_without_delayed(split: SplitBatch, partition: Partition) -> bytearray:
    """The batch without its delayed records, with the same offsets and sequence numbers."""
    header, now = split.header, split.now
    codec = (
        header.codec if partition.settings.compression is None else partition.settings.compression
    )
    if not now:
        codec = Compression.NONE
    base_timestamp = now[0][1].timestamp_ms if now else header.base_timestamp
    payload = encode_records(now, base_timestamp=base_timestamp)
    newest = max((record.timestamp_ms for _, record in now), default=header.max_timestamp)
    return build_batch(
        compress(codec, payload),
        record_count=len(now),
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes & ~CODEC_MASK | codec,
        base_timestamp=base_timestamp,
        max_timestamp=newest,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
