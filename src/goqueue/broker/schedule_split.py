"""A producer's batch with delayed records: some go to the log now, the others are scheduled.

The log must remember the sequence numbers of the whole batch, or the producer's next batch would
be out of turn. So what is due now is written as a batch that spans all offsets of the original and
lacks the delayed records, the way compaction leaves batches behind. The delayed ones are stored as
one batch in the log of schedules, each with the batch it came from.

A retry may meet a crash that took either part away. Each part therefore decides for itself: the
partition by its sequence numbers, the log of schedules by the origins that it remembers for just
as many batches. What is there is not stored again, what is missing is, and the answer waits until
both are durable. A producer without an id has no such protection, here as anywhere.
"""

from __future__ import annotations

from functools import partial

from goqueue.broker.schedules import Delayed, Schedules, Wait
from goqueue.broker.topics import Topic
from goqueue.delivery.schedules import Origin
from goqueue.model.attributes import parse_attributes
from goqueue.model.batch import (
    CODEC_MASK,
    BatchHeader,
    Record,
    build_batch,
    decode_records,
    encode_records,
    unpack_payload,
)
from goqueue.model.compression import Compression, compress
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition import Appended, Committed, Partition
from goqueue.partition.rules import check_produced


class Split:
    """Where the parts of a batch went. The records have no offsets in common with the answer."""

    __slots__ = ("_waits", "base_offset", "last_offset", "timestamp_ms")

    def __init__(self, waits: list[Wait]) -> None:
        self._waits = waits
        self.base_offset = -1
        self.last_offset = -1
        self.timestamp_ms = -1

    def when_committed(self, committed: Committed) -> None:
        """Call `committed` once all parts are as durable as promised."""
        left = len(self._waits)
        failure: GoQueueError | None = None

        def one_done(error: GoQueueError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if not left:
                committed(failure)

        for wait in self._waits:
            wait(one_done)


def append_with_attributes(
    schedules: Schedules, topic: Topic, partition: Partition, batch: memoryview, *, now_ms: int
) -> Appended | Split:
    """Store a batch whose records may ask for something; refuse what makes no sense."""
    header, now, later = _sort(partition, batch, now_ms=now_ms)
    if not later:
        return partition.append(batch, now_ms=now_ms)
    return _split(schedules, topic, partition, header, now, later, now_ms=now_ms)


def scheduled_participant(
    schedules: Schedules, topic: Topic, partition: Partition, batch: memoryview, *, now_ms: int
) -> TopicPartition | None:
    """What else takes part in a transaction by this batch: where its delayed records wait.

    A batch that will be refused anyway is refused here already.
    """
    _, _, later = _sort(partition, batch, now_ms=now_ms)
    if not later:
        return None
    return schedules.participant(topic, partition.name.partition)


def _sort(
    partition: Partition, batch: memoryview, *, now_ms: int
) -> tuple[BatchHeader, list[tuple[int, Record]], list[Delayed]]:
    """The records that are due now, with their places in the batch, and the others."""
    header = check_produced(batch, partition.settings, now_ms=now_ms)
    now: list[tuple[int, Record]] = []
    later: list[Delayed] = []
    for index, record in enumerate(decode_records(header, unpack_payload(batch, header))):
        due_ms = parse_attributes(record.headers).due_ms(now_ms) if record.headers else None
        if due_ms is None:
            now.append((index, record))
        else:
            later.append(Delayed(record, due_ms, partition.name.partition))
    return header, now, later


def _split(
    schedules: Schedules,
    topic: Topic,
    partition: Partition,
    header: BatchHeader,
    now: list[tuple[int, Record]],
    later: list[Delayed],
    *,
    now_ms: int,
) -> Split:
    if partition.failure is not None:
        raise partition.failure
    origin, earlier = None, None
    if header.producer_id >= 0:
        # A batch out of turn is refused here, before any part of it is stored.
        earlier = partition.producers.check(header)
        if earlier is None:
            partition.check_transaction(header)
        origin = Origin(header.producer_id, header.producer_epoch, header.base_sequence)
    transaction = None
    if header.is_transactional:
        transaction = ProducerIdentity(header.producer_id, header.producer_epoch)
    waits = [schedules.schedule_batch(topic, later, origin, transaction=transaction)]
    if earlier is not None:
        waits.append(partial(partition.when_committed, earlier.last_offset))
    elif now or origin is not None:
        rest = memoryview(_rest(header, now, partition))
        is_append_time = partition.settings.is_append_time
        written = partition.write(rest, now_ms=now_ms, is_append_time=is_append_time)
        waits.append(partial(partition.when_committed, written.last_offset))
    return Split(waits)


def _rest(header: BatchHeader, now: list[tuple[int, Record]], partition: Partition) -> bytearray:
    """The batch without its delayed records, over the same offsets and sequence numbers."""
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
