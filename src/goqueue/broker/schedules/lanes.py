"""Messages in flight from the schedule logs to one partition of their topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.topics.topics import Topic
from goqueue.delivery.schedules import (
    ScheduledMessage,
    ScheduleIds,
    TargetKey,
    released_records,
)
from goqueue.model.batch import Header, build_batch
from goqueue.model.compression import Compression, compress
from goqueue.model.dead_letters import UNKNOWN, Origin, write_origin
from goqueue.model.names import ProducerIdentity
from goqueue.partition import Partition

BATCH_RECORDS_MAX = 500  # so that one batch does not delay others for long
BATCH_BYTES_MAX = 512 << 10
RECORD_BYTES = 64  # overhead of a record, including the schedule id


class Release(NamedTuple):
    """One message in flight to its topic."""

    log: ScheduleLog
    number: int
    due_ms: int
    message: ScheduledMessage
    size: int
    reason: str = ""  # why it is dead-lettered instead


class Lane:
    """The releases for one partition: one batch in flight, the rest queued."""

    __slots__ = ("epoch", "is_busy", "key", "partition", "sequence", "topic", "waiting")

    def __init__(self, topic: Topic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self.key: TargetKey = (topic.id, partition.name.partition)
        self.epoch = -1  # of the producer, to which the sequence numbers belong
        self.waiting: deque[Release] = deque()
        self.is_busy = False
        self.sequence = 0

    def take_batch(self, now_ms: int) -> tuple[list[Release], list[Release]]:
        """The next releases to send, and those no longer due because the clock was set back."""
        room = min(BATCH_BYTES_MAX, self.partition.settings.message_bytes_max)
        waiting = self.waiting
        batch: list[Release] = []
        early: list[Release] = []
        while waiting and len(batch) < BATCH_RECORDS_MAX:
            release = waiting[0]
            room -= release.size
            if batch and room < 0:
                break
            waiting.popleft()
            (batch if release.due_ms <= now_ms else early).append(release)
        return batch, early


def message_size(message: ScheduledMessage) -> int:
    """The approximate size of a message in a batch, in bytes."""
    size = RECORD_BYTES
    if message.key is not None:
        size += len(message.key)
    if message.value is not None:
        size += len(message.value)
    if message.headers:
        size += sum(len(name) + len(content or b"") + 4 for name, content in message.headers)
    return size


def release_batch(
    lane: Lane,
    releases: Sequence[Release],
    ids: ScheduleIds,
    producer: ProducerIdentity,
    *,
    base_sequence: int,
    now_ms: int,
) -> bytearray:
    """Encode messages as a batch of the broker's producer, each with its schedule id."""
    codec = lane.partition.settings.compression or Compression.NONE
    records = released_records(
        [
            (one.message.key, one.message.value, _headers(one, now_ms))
            if one.reason
            else (one.message.key, one.message.value, one.message.headers)
            for one in releases
        ],
        ids.write_many([(one.log.number, one.number) for one in releases]),
    )
    return build_batch(
        compress(codec, records),
        record_count=len(releases),
        attributes=codec,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=base_sequence,
    )


def _headers(release: Release, now_ms: int) -> tuple[Header, ...]:
    """The headers of a dead letter, which give the reason."""
    message = release.message
    origin = Origin(message.topic, message.partition, UNKNOWN, "", release.reason, 0, now_ms)
    return (*message.headers, *write_origin(origin))
