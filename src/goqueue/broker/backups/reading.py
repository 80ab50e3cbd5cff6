"""What a leader says of its logs for a backup: their committed spans, and their batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from goqueue.broker.backups.cutting import Place, Span
from goqueue.broker.topics.topics import Topics
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, NotCoordinator, OffsetOutOfRange
from goqueue.partition import Partition

READ_BYTES_MAX = 1 << 20


class Piece(NamedTuple):
    """Whole batches of a partition, and the state of its log when they were read."""

    start: int  # of the log
    cleaned: int  # compaction has removed records below this offset
    end: int  # of the log
    data: bytes


async def committed_spans(
    topics: Topics, places: Sequence[Place], confirm: Callable[[], Promise[None]]
) -> list[Span]:
    """Return the spans of logs that this node leads, now, once all of it is committed.

    The end of the leader's log is at least everything that was acknowledged. It is returned when it
    is committed, and when it is certain that no other node had taken over before it was read.
    """
    partitions = [_led(topics, place) for place in places]
    spans = [Span(one.start_offset, one.end_offset) for one in partitions]
    epochs = [one.leader_epoch for one in partitions]
    waits = [_committed(one, span.end) for one, span in zip(partitions, spans, strict=True)]
    for wait in waits:
        await wait
    await confirm()
    for place, partition, epoch in zip(places, partitions, epochs, strict=True):
        if _led(topics, place) is not partition or partition.leader_epoch != epoch:
            raise _moved()
    return spans


def _led(topics: Topics, place: Place) -> Partition:
    topic_id, number = place
    partition = topics.get_by_id(topic_id).partition(number)
    if partition.is_following or not topics.keeps(partition):
        raise _moved()
    return partition


def _moved() -> NotCoordinator:
    return NotCoordinator("Another node leads the partition now; retry there.")


def _committed(partition: Partition, end: int) -> Promise[None]:
    committed: Promise[None] = Promise()

    def done(error: GoQueueError | None) -> None:
        committed.settle(None, error)

    if end <= partition.high_watermark:
        done(None)
    else:
        partition.when_committed(end - 1, done)
    return committed


async def read_piece(topics: Topics, place: Place, *, offset: int, until: int) -> Piece:
    """Return committed batches from the one with `offset` on, or from the start of the log.

    There are none at or after `until`. Damage raises `CorruptBatch`.
    """
    partition = _led(topics, place)
    log = partition.log
    offset = max(offset, log.start_offset)
    if until > log.end_offset:
        span = {"start": log.start_offset, "end": log.end_offset}
        raise OffsetOutOfRange(partition.name, until, **span)
    # A new leader may not know yet that everything up to the cut is committed.
    await _committed(partition, until)
    data = b""
    if offset < until:
        found = log.read(offset, bytes_max=READ_BYTES_MAX, until_offset=until)
        data = b"" if found is None else found.read_checked()
    return Piece(log.start_offset, log.cleaned_offset, log.end_offset, data)
