"""Positions in partitions, as readers give them: an offset, a time, or one of the ends."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from goqueue.broker.reading.records import Place
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.topics.topics import Topic
from goqueue.model.batch import Record
from goqueue.model.errors import OffsetOutOfRange
from goqueue.partition import Partition


class At(StrEnum):
    """How a position is given."""

    OFFSET = "offset"
    TIME = "time"  # the first record that is not older
    EARLIEST = "earliest"
    LATEST = "latest"  # the end of what a reader may see
    NEWEST = "newest"  # the record with the highest timestamp
    RECORDS_END = "records_end"  # after the last record; markers and aborted ones do not count
    REMOTE_END = "remote_end"  # the end of what has been moved to remote storage


class Position(NamedTuple):
    """A position in any partition; the value is the offset or the time in milliseconds."""

    at: At
    value: int = 0


EARLIEST = Position(At.EARLIEST)
LATEST = Position(At.LATEST)


class Span(NamedTuple):
    """What to read of one partition: from a position, and up to another if one is given."""

    partition: int
    begin: Position
    until: Position | None = None


class Range(NamedTuple):
    """Offsets of one partition."""

    partition: int
    begin: int
    end: int


class FoundOffset(NamedTuple):
    """The offset at a position, its leader epoch, and the timestamp of its record."""

    offset: int
    leader_epoch: int
    timestamp_ms: int = -1


class Look(Protocol):
    """Gets the bounds of partitions, wherever they are led."""

    def __call__(
        self, topic: Topic, numbers: Sequence[int], *, times_ms: Sequence[int]
    ) -> Awaitable[Sequence[Bounds]]: ...


def times_of(positions: Iterable[Position | None]) -> list[int]:
    """The timestamps to look up in partitions."""
    times = [one.value for one in positions if one is not None and one.at is At.TIME]
    return list(dict.fromkeys(times))


def offset_at(bounds: Bounds, position: Position, *, is_committed_only: bool = True) -> int:
    """The offset of a position; the end if no record is as new as a timestamp.

    For readers of committed records it is at most the start of the first open transaction, whose
    records may still be committed.
    """
    if position.at is At.OFFSET:
        return position.value
    if position.at is At.EARLIEST:
        return bounds.start_offset
    if position.at is At.TIME:
        found = bounds.find_timestamp(position.value, is_committed_only=is_committed_only)
        if found is not None:
            return found.offset
    return bounds.last_stable_offset if is_committed_only else bounds.high_watermark


def range_of(span: Span, bounds: Bounds, *, is_committed_only: bool) -> Range:
    """The offsets of a span that exist now."""
    last = bounds.last_stable_offset if is_committed_only else bounds.high_watermark
    end = last
    if span.until is not None:
        end = min(last, offset_at(bounds, span.until, is_committed_only=is_committed_only))
    begin = offset_at(bounds, span.begin, is_committed_only=is_committed_only)
    begin = max(begin, bounds.start_offset)
    return Range(span.partition, begin, max(begin, end))


async def find_places(
    look: Look, topic: Topic, spans: Sequence[Span], *, is_committed_only: bool
) -> list[Place]:
    """Resolve where to read; an offset that does not exist is refused before the read."""
    times_ms = times_of(position for one in spans for position in (one.begin, one.until))
    bounds = await look(topic, [one.partition for one in spans], times_ms=times_ms)
    return [
        _place(topic, span, one, is_committed_only) for span, one in zip(spans, bounds, strict=True)
    ]


def _place(topic: Topic, span: Span, bounds: Bounds, is_committed_only: bool) -> Place:
    begin = offset_at(bounds, span.begin, is_committed_only=is_committed_only)
    is_there = bounds.start_offset <= begin <= bounds.end_offset
    if span.begin.at is At.OFFSET and not is_there:
        raise OffsetOutOfRange(
            bounds.name, begin, start=bounds.start_offset, end=bounds.high_watermark
        )
    until = None
    if span.until is not None and span.until.at is not At.LATEST:
        until = offset_at(bounds, span.until, is_committed_only=is_committed_only)
    return Place(topic.partition(span.partition), begin, until)


def find_offset(
    partition: Partition, position: Position, *, is_committed_only: bool
) -> FoundOffset | None:
    """Resolve a position in a partition led here; None if there is nothing."""
    record: Record | None = None
    if position.at is At.LATEST:
        is_stable = is_committed_only
        end = partition.last_stable_offset if is_stable else partition.high_watermark
        return FoundOffset(end, partition.leader_epoch)
    if position.at is At.EARLIEST:
        start = partition.start_offset
        return FoundOffset(start, partition.epochs.epoch_of(start))
    if position.at is At.RECORDS_END:
        return FoundOffset(partition.records_end(), partition.leader_epoch)
    if position.at is At.NEWEST:
        record = partition.find_newest(is_committed_only=is_committed_only)
    elif position.at is At.TIME:
        record = partition.find_timestamp(position.value, is_committed_only=is_committed_only)
    if record is None:
        return None
    epoch = partition.epochs.epoch_of(record.offset)
    return FoundOffset(record.offset, epoch, record.timestamp_ms)
