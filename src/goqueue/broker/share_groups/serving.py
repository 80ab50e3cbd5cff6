"""Records of leases, read by the leader of their partition from its own log.

Whole batches are sent as they are stored. So that a lease ends where a batch does, the leader tells
the owner of the group up to where it would like to have new records; it remembers where the group
continues in each partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from goqueue.broker.topics.topics import Topic, Topics
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    CorruptBatch,
    GoQueueError,
    OffsetOutOfRange,
    StorageFailed,
)
from goqueue.model.share_groups import AcquiredRange, ShareLeased
from goqueue.partition import Partition
from goqueue.storage.log import Slice

# Partitions of groups whose position is remembered; without it a lease may end within a batch.
PLACES_MAX = 20_000
# Records that were not leased are sent along if there are at most so many between two that were.
NEAR_OFFSETS = 100
_RECORD_BYTES = 256  # assumed, until records of a partition were sent

Range = tuple[int, int]  # first and last offset


@dataclass(slots=True)
class _Place:
    """Where a group continues in a partition, and how large its records were."""

    next_offset: int
    record_bytes: float


@dataclass(slots=True)
class ReadLease:
    """Leased records as the member gets them, and those that it does not get."""

    batches: list[Slice] = field(default_factory=list)
    acquired: list[AcquiredRange] = field(default_factory=list)
    unsent: list[Range] = field(default_factory=list)
    gone: list[Range] = field(default_factory=list)  # that no longer exist
    error: GoQueueError | None = None

    @property
    def size(self) -> int:
        return sum(one.length for one in self.batches)


def not_sent(leased: ShareLeased, error: GoQueueError) -> ReadLease:
    """Return what a member gets of a lease that it must not get, or that cannot be read."""
    return ReadLease(unsent=[(one.first, one.last) for one in leased.ranges], error=error)


class ShareServing:
    """Reads what members have leased, from partitions that this node leads."""

    def __init__(self, topics: Topics, *, is_curable: Callable[[bytes, int], bool]) -> None:
        """`is_curable` returns whether damaged records can be restored from another replica."""
        self._topics = topics
        self._is_curable = is_curable
        self._places: OrderedDict[tuple[str, bytes, int], _Place] = OrderedDict()

    def led(self, topic_name: str, number: int) -> tuple[Topic, Partition]:
        """Return a partition; raise unless this node leads it."""
        topic = self._topics.get(topic_name)
        partition = topic.partition(number)
        partition.check_leading()
        return topic, partition

    def aligned_end(
        self, group: str, topic: Topic, partition: Partition, *, records: int, bytes_max: int
    ) -> int:
        """Return the end of a batch after about so many new records for a group; 0 if unknown."""
        place = self._places.get((group, topic.id, partition.name.partition))
        if place is None:
            return 0
        size = min(bytes_max, round(records * place.record_bytes))
        try:
            ahead = partition.read(place.next_offset, bytes_max=size, is_committed_only=True)
        except GoQueueError:
            return 0  # Reading what is leased reports it.
        return 0 if ahead is None else ahead.end_offset

    def read(self, group: str, leased: ShareLeased, *, bytes_max: int, is_first: bool) -> ReadLease:
        """Read leased records as far as they fit; the first batch of a response always does."""
        try:
            topic, partition = self.led(leased.topic, leased.partition)
            if leased.ranges[-1].last >= partition.last_stable_offset:
                raise CoordinatorNotAvailable(f"{partition.name} is catching up here; retry.")
        except GoQueueError as error:
            return not_sent(leased, error)
        read = ReadLease()
        end = _Reading(partition, read, bytes_max, is_first=is_first).read(
            [(one.first, one.last) for one in leased.ranges],
            is_curable=lambda: self._is_curable(topic.id, leased.partition),
        )
        _divide(leased.ranges, end, read)
        if read.batches:
            self._note(group, topic, leased, read)
        return read

    def _note(self, group: str, topic: Topic, leased: ShareLeased, read: ReadLease) -> None:
        count = sum(one.end_offset - one.offset for one in read.batches)
        key = (group, topic.id, leased.partition)
        self._places[key] = _Place(leased.next_offset, read.size / count)
        self._places.move_to_end(key)
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)


class _Reading:
    """Reads the batches of ranges, in order."""

    def __init__(
        self, partition: Partition, read: ReadLease, bytes_max: int, *, is_first: bool
    ) -> None:
        self._partition = partition
        self._read = read
        self._room = bytes_max
        self._is_first = is_first
        self._covered = 0  # the offset up to which batches were read

    def read(self, ranges: Sequence[Range], *, is_curable: Callable[[], bool]) -> int:
        """Return the offset up to which everything was read, or does not exist any more."""
        for first, last in _stretches(ranges):
            at = max(first, self._covered)
            while at <= last:
                try:
                    following = self._read_from(at, last)
                except OffsetOutOfRange:
                    following = min(last + 1, max(at + 1, self._partition.start_offset))
                    self._read.gone.append((at, following - 1))
                except CorruptBatch as error:
                    if error.next_offset is None or is_curable():
                        self._read.error = StorageFailed(
                            f"A part of {self._partition.name} is damaged and cannot be read now."
                        )
                        return at
                    following = max(at + 1, error.next_offset)
                    self._read.gone.append((at, min(last, following - 1)))
                except GoQueueError as error:
                    self._read.error = error
                    return at
                if following is None:
                    return at
                at = following
        return ranges[-1][1] + 1

    def _read_from(self, at: int, last: int) -> int | None:
        """Read batches from an offset on; return the one after them, None if nothing fits."""
        if self._room <= 0 and not self._is_first:
            return None
        tail = self._partition.read(last, bytes_max=1, is_committed_only=True)
        until = last + 1 if tail is None or tail.offset > last else tail.end_offset
        bytes_max = max(1, self._room)
        found = self._partition.read(
            at, bytes_max=bytes_max, is_committed_only=True, until_offset=until
        )
        if found is None:
            return until  # Compaction has left nothing.
        if found.length > self._room and not self._is_first:
            return None
        self._read.batches.append(found)
        self._room -= found.length
        self._is_first = False
        self._covered = found.end_offset
        return found.end_offset


def _stretches(ranges: Sequence[Range]) -> Iterator[Range]:
    """Yield ranges that are close together as one."""
    first, last = ranges[0]
    for following in ranges[1:]:
        if following[0] - last > NEAR_OFFSETS:
            yield first, last
            first = following[0]
        last = following[1]
    yield first, last


def _divide(ranges: Sequence[AcquiredRange], end: int, read: ReadLease) -> None:
    """Divide what was leased into what the member gets, and what it does not."""
    for one in ranges:
        if one.last < end:
            read.acquired.append(one)
        elif one.first >= end:
            read.unsent.append((one.first, one.last))
        else:
            read.acquired.append(AcquiredRange(one.first, end - 1, one.delivery_count))
            read.unsent.append((end, one.last))
    for first, last in read.gone:
        read.acquired = [part for one in read.acquired for part in _without(one, first, last)]
    read.gone = [
        (max(first, one.first), min(last, one.last))
        for first, last in read.gone
        for one in ranges
        if max(first, one.first) <= min(last, one.last)
    ]


def _without(one: AcquiredRange, first: int, last: int) -> Iterator[AcquiredRange]:
    if one.first < first:
        yield AcquiredRange(one.first, min(one.last, first - 1), one.delivery_count)
    if one.last > last:
        yield AcquiredRange(max(one.first, last + 1), one.last, one.delivery_count)
