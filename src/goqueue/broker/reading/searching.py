"""Searching partitions for records by key, trace id, header or text.

A call reads a bounded number of bytes and says where the next one continues. Steps run in a thread
and are short, and a node runs few at a time, so that a search of gigabytes delays nobody.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Protocol

from goqueue.broker.reading.record_search import SearchPart
from goqueue.broker.reading.records import Place, Reading, record_size
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.batch import Record
from goqueue.model.errors import CorruptBatch, RequestTimedOut
from goqueue.model.scanning import Wanted
from goqueue.model.tenants import tenant_of
from goqueue.partition import KeyFiltering, Partition
from goqueue.storage.damage import Place as SegmentPlace
from goqueue.storage.key_search import Found, Part, SegmentSearch
from goqueue.storage.segment import Segment

STEP_BYTES = 16 << 20  # read at once: some 10 ms if it is in memory
FOUND_MAX = 1000  # a step that has found so many ends
NEAR = 200  # records with offsets so close to each other are read together
READ_BYTES = 256 << 10
STEPS_AT_ONCE = 2  # of all searches of a node
WAITING_MAX = 200  # searches of a tenant that wait for a step; further ones are refused
RECORDS_BYTES_MAX = 4 << 20  # of the records that one call returns

_base_offset = attrgetter("base_offset")


class ReadRecords(Protocol):
    """Reads records of partitions, wherever they are led."""

    def __call__(self, places: Sequence[Place], *, records_max: int, bytes_max: int) -> Reading: ...


class Searches:
    """Searches the partitions that this node leads."""

    def __init__(self, clock: Clock, read: ReadRecords) -> None:
        self._read = read
        self._turns = _Turns(clock)

    async def search(
        self,
        partition: Partition,
        wanted: Wanted,
        *,
        begin: int,
        until: int,
        limit: int,
        bytes_max: int,
        cancellation: Cancellation,
    ) -> SearchPart:
        """Return the records from `begin` on that satisfy the conditions, and are committed."""
        end = min(until, partition.last_stable_offset)
        offset = max(begin, partition.start_offset)
        records: list[Record] = []
        read = skipped = 0
        while offset < end and len(records) < limit and read < bytes_max:
            segment = _segment_at(partition, offset)
            search = SegmentSearch(
                partition.log.disk,
                partition.log.folder,
                segment,
                Part(segment.place_before(offset), _end_place(segment, end)),
                wanted,
                builds=partition.settings.key_filters is not KeyFiltering.OFF,
            )
            try:
                while not search.is_done and len(records) < limit and read < bytes_max:
                    found = await self._step(partition, search, bytes_max - read, cancellation)
                    read, skipped = read + found.read_bytes, skipped + found.skipped_bytes
                    # The offsets are compared again, as a step begins with a whole batch.
                    inside = [one for one in found.offsets if offset <= one < end]
                    offset = max(offset, found.place.offset)
                    if inside:
                        got, offset = await self._records(
                            partition, inside, offset, limit - len(records)
                        )
                        records += got
                    if found.damaged is not None:
                        offset = _step_over(segment, search, found)
            finally:
                search.close()
            if sum(map(record_size, records)) >= RECORDS_BYTES_MAX:
                break
        return SearchPart(records, offset, offset >= end, read, skipped)

    async def _step(
        self,
        partition: Partition,
        search: SegmentSearch,
        bytes_max: int,
        cancellation: Cancellation,
    ) -> Found:
        step = partial(search.step, bytes_max=min(bytes_max, STEP_BYTES), offsets_max=FOUND_MAX)
        found = await self._turns.run(tenant_of(partition.name.topic), step)
        if cancellation.is_cancelled:
            raise RequestTimedOut("The client has disconnected.")
        if search.segment in partition.log.segments:
            search.keep(found)
        return found

    async def _records(
        self, partition: Partition, offsets: Sequence[int], next_offset: int, limit: int
    ) -> tuple[list[Record], int]:
        """Return the records at these offsets that committed readers may see, up to a number.

        Also return where to continue: at `next_offset` unless not all of them were read.
        """
        records: list[Record] = []
        wanted = deque(offsets)
        size = 0
        while wanted:
            if len(records) >= limit or size >= RECORDS_BYTES_MAX:
                return records, wanted[0]
            near = [one for one in wanted if one < wanted[0] + NEAR]
            place = Place(partition, near[0], near[-1] + 1)
            reading = self._read([place], records_max=NEAR, bytes_max=READ_BYTES)
            page = await reading.promise
            for _, record in page.records:
                if record.offset in near and len(records) < limit:
                    records.append(record)
                    size += record_size(record)
            read_to = page.places[0].offset
            if len(records) >= limit:
                read_to = records[-1].offset + 1
            while wanted and wanted[0] < max(read_to, near[0] + 1):
                wanted.popleft()
            await self._turns.pause()
        return records, next_offset


def _segment_at(partition: Partition, offset: int) -> Segment:
    segments = partition.log.segments
    return segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1)]


def _end_place(segment: Segment, end: int) -> SegmentPlace:
    """Return where a search of a segment ends: after the batch that has the last offset wanted."""
    if end < segment.end_offset:
        try:
            located = segment.locate(end - 1)
            if located is not None:
                return SegmentPlace(located.end, located.header.next_offset)
        except CorruptBatch:
            pass  # The search meets the damage itself.
    return SegmentPlace(segment.size, segment.end_offset)


def _step_over(segment: Segment, search: SegmentSearch, found: Found) -> int:
    """Continue after damage in a segment, if anything there can be read; return the offset."""
    assert found.damaged is not None
    error: CorruptBatch = segment.corrupt(found.damaged)
    assert error.position is not None
    resume = segment.damages[error.position].resume
    search.resume(SegmentPlace(segment.size, segment.end_offset) if resume is None else resume)
    return search.place.offset


class _Turns:
    """Runs a few steps at a time: one of each tenant in turn, each in the order of its requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running = 0
        # By tenant, the one that is next first; a tenant without steps is not here.
        self._waiting: dict[str, deque[tuple[Callable[[], Found], Promise[Found]]]] = {}

    def run(self, tenant: str, step: Callable[[], Found]) -> Promise[Found]:
        waiting = self._waiting.setdefault(tenant, deque())
        if len(waiting) >= WAITING_MAX:
            raise RequestTimedOut(f"{WAITING_MAX} searches are waiting on this node; retry later.")
        promise: Promise[Found] = Promise()
        waiting.append((step, promise))
        self._next()
        return promise

    def pause(self) -> Promise[None]:
        """Let other work of the event loop run."""
        promise: Promise[None] = Promise()
        self._clock.call_soon(lambda: promise.resolve(None))
        return promise

    def _next(self) -> None:
        while self._waiting and self._running < STEPS_AT_ONCE:
            tenant = next(iter(self._waiting))
            waiting = self._waiting.pop(tenant)
            step, promise = waiting.popleft()
            if waiting:
                self._waiting[tenant] = waiting  # behind the others
            self._running += 1
            self._clock.run_blocking(step, partial(self._done, promise))

    def _done(self, promise: Promise[Found], found: Found | None, error: Exception | None) -> None:
        self._running -= 1
        promise.settle(found, error)
        self._next()
