"""The partitions that messages are released to: their queues, and the batches for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.observation import Move
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery.schedules import (
    Intent,
    ScheduledMessage,
    ScheduleIds,
    TargetKey,
    released_records,
)
from goqueue.model.batch import Header, build_batch
from goqueue.model.compression import Compression, compress
from goqueue.model.dead_letters import UNKNOWN, Origin, write_origin
from goqueue.model.names import ProducerIdentity
from goqueue.model.observer import Target
from goqueue.partition import Partition

MESSAGES_MAX = 10_000  # queued and in flight at once, over all topics
BYTES_MAX = 32 << 20
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


class TargetQueue:
    """The releases for one partition of a topic: one batch in flight, the rest queued."""

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


class TargetQueues:
    """The queues of all targets, and how much is queued or in flight in all of them."""

    def __init__(self, topics: Topics) -> None:
        self.messages = 0
        self.bytes = 0
        self._topics = topics
        self._queues: dict[TargetKey, TargetQueue] = {}

    def __iter__(self) -> Iterator[TargetQueue]:
        return iter(list(self._queues.values()))

    @property
    def has_room(self) -> bool:
        return self.messages < MESSAGES_MAX and self.bytes < BYTES_MAX

    @property
    def is_busy(self) -> bool:
        """Whether a batch is in flight."""
        return any(queue.is_busy for queue in self._queues.values())

    def enqueue(self, topic: Topic, number: int, release: Release) -> None:
        """Queue a message for a partition."""
        queue = self._queues.get((topic.id, number)) or self.find(topic, number)
        queue.waiting.append(release)
        self.messages += 1
        self.bytes += release.size

    def find(self, topic: Topic, number: int) -> TargetQueue:
        """The queue of a partition, new or not."""
        queue = self._queues.get((topic.id, number))
        if queue is None:
            queue = self._queues[topic.id, number] = TargetQueue(topic, topic.partitions[number])
        return queue

    def is_gone(self, queue: TargetQueue) -> bool:
        return self._topics.find_by_id(queue.topic.id) is None

    def remove(self, queue: TargetQueue) -> None:
        self._queues.pop(queue.key, None)

    def enter(self, releases: Iterable[Release]) -> None:
        """Count messages that are sent without having been queued."""
        for release in releases:
            self.messages += 1
            self.bytes += release.size

    def leave(self, releases: Iterable[Release]) -> None:
        """Count messages as no longer queued or in flight."""
        for release in releases:
            self.messages -= 1
            self.bytes -= release.size

    def give_back(self, queue: TargetQueue, *, retry_ms: int | None = None) -> None:
        """Return what is queued to the agendas: due as before, or at `retry_ms`."""
        self.leave(queue.waiting)
        for release in queue.waiting:
            release.log.agenda.give_back(release.number, retry_ms=retry_ms)
        queue.waiting.clear()


class Transfer(NamedTuple):
    """One batch on its way to its target. With an `intent`, it was announced."""

    queue: TargetQueue
    batch: list[Release]
    producer: ProducerIdentity
    base_sequence: int
    intent: Intent | None = None
    first_offset: int = -1  # in the target, once it is stored and that is known

    def moves(self) -> dict[ScheduleLog, list[Move]]:
        """Return which ranges of messages of each log are where in the target."""
        found: dict[ScheduleLog, list[Move]] = {}
        partition = self.queue.partition.name
        for place, release in enumerate(self.batch):
            moves = found.setdefault(release.log, [])
            offset = self.first_offset + place if self.first_offset >= 0 else -1
            last = moves[-1] if moves else None
            if last is not None and _follows(last, release.number, offset):
                moves[-1] = last._replace(end=release.number + 1)
            else:
                target = Target(partition, offset)
                moves.append(Move(release.number, release.number + 1, target))
        return found


def _follows(move: Move, number: int, offset: int) -> bool:
    first = move.target.offset
    return move.end == number and offset == (first + move.end - move.first if first >= 0 else -1)


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


def release_batch(transfer: Transfer, ids: ScheduleIds, *, now_ms: int) -> bytearray:
    """Encode messages as a batch of the broker's producer, each with its schedule id."""
    codec = transfer.queue.partition.settings.compression or Compression.NONE
    releases, producer = transfer.batch, transfer.producer
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
        base_sequence=transfer.base_sequence,
    )


def _headers(release: Release, now_ms: int) -> tuple[Header, ...]:
    """The headers of a dead letter, which give the reason."""
    message = release.message
    origin = Origin(message.topic, message.partition, UNKNOWN, "", release.reason, 0, now_ms)
    return (*message.headers, *write_origin(origin))
