"""Reading records one by one, for front ends that do not take whole batches.

Several partitions are read as one: the record with the oldest timestamp comes first, and within a
partition records are in offset order. Damage is skipped and reported, never hidden.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from goqueue.broker.reading.fetching import Fetch, FetchDone, Fetched, Wanted
from goqueue.loop.promise import Promise
from goqueue.model.batch import (
    BatchHeader,
    Record,
    decode_records,
    read_header,
    unpack_payload,
)
from goqueue.model.compression import meter
from goqueue.model.errors import CorruptBatch, GoQueueError, StorageFailed
from goqueue.partition import AbortedSpans, Partition

READ_BYTES = 64 << 10  # read from the log at once, or one whole batch if that is larger
# The approximate overhead of a message, or of a header, in a response.
RECORD_BYTES = 100
# Batches without records to return that one read skips before it ends.
EMPTY_BATCHES_MAX = 1000
# Bytes of batches, and of their decompressed contents, that one read processes; then it ends.
# The next read continues there.
UNPACKED_BYTES_MAX = 64 << 20


class Place(NamedTuple):
    """Where to read in a partition: from an offset, and before another if one is given."""

    partition: Partition
    offset: int
    until_offset: int | None = None


class Damaged(NamedTuple):
    """Offsets that can no longer be read, and the reason."""

    partition: Partition
    offset: int
    next_offset: int
    error: CorruptBatch


@dataclass(slots=True, weakref_slot=True)
class Page:
    """The result of one read. `places` are where to continue, in the order they were given."""

    records: list[tuple[Partition, Record]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    error: GoQueueError | None = None  # why reading of a place stopped although there is more
    room: int = UNPACKED_BYTES_MAX  # how much may still be read and decompressed

    @property
    def is_empty(self) -> bool:
        return not self.records and not self.damaged


class _Fetcher(Protocol):
    def __call__(
        self,
        wanted: Sequence[Wanted],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        done: FetchDone,
    ) -> Fetch: ...


IsCurable = Callable[[Partition], bool]


def _is_lost(_: Partition) -> bool:
    return False


class Reading:
    """One read that may wait for records; `promise` resolves to the page, `cancel` ends the
    wait.
    """

    def __init__(
        self,
        places: Sequence[Place],
        *,
        records_max: int,
        bytes_max: int,
        is_committed_only: bool = True,
        is_curable: IsCurable = _is_lost,
    ) -> None:
        """Damage is skipped, unless it `is_curable`: then the read stops there with an error."""
        self.promise: Promise[Page] = Promise()
        self.cancel: Callable[[], None] = _nothing
        self._places = places
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._is_committed_only = is_committed_only
        self._is_curable = is_curable

    def start(self, fetch: _Fetcher, wait_ms: int) -> None:
        """Read now; if there is nothing yet, read again when there is or on timeout."""
        try:
            page = self._read()
        except GoQueueError as error:
            self.promise.reject(error)
            return
        waiting = [one for one in page.places if not _is_finished(one)]
        if not page.is_empty or wait_ms <= 0 or not waiting:
            self.promise.resolve(page)
            return
        self._places = page.places
        is_committed_only = self._is_committed_only
        wanted = [
            Wanted(one.partition, one.offset, 1, is_committed_only=is_committed_only)
            for one in waiting
        ]
        fetching = fetch(wanted, bytes_min=1, bytes_max=1, wait_ms=wait_ms, done=self._arrived)
        self.cancel = fetching.cancel

    def finish(self) -> None:
        """End a wait that is still in progress, without records."""
        if not self.promise.is_done:
            self.cancel()
            self.promise.resolve(Page(places=list(self._places)))

    def _arrived(self, results: list[Fetched]) -> None:
        try:
            for result in results:
                # The read below finds the damage again, and can skip it.
                if result.error is not None and not isinstance(result.error, CorruptBatch):
                    raise result.error
            page = self._read()
        except GoQueueError as error:
            self.promise.reject(error)
        else:
            self.promise.resolve(page)

    def _read(self) -> Page:
        return read_page(
            self._places,
            records_max=self._records_max,
            bytes_max=self._bytes_max,
            is_committed_only=self._is_committed_only,
            is_curable=self._is_curable,
        )


def read_page(
    places: Sequence[Place],
    *,
    records_max: int,
    bytes_max: int,
    is_committed_only: bool = True,
    is_curable: IsCurable = _is_lost,
) -> Page:
    """The oldest records of all places, up to a number and approximately up to a size.

    Unless `is_committed_only`, they may belong to transactions that are open or aborted.
    """
    page = Page()
    cursors = [_Cursor(place, page, is_curable, is_committed_only) for place in places]
    try:
        _fill(page, cursors, records_max=records_max, bytes_max=bytes_max)
    finally:
        for cursor in cursors:
            cursor.close()
    if page.error is not None and page.is_empty:
        raise page.error
    return page


def _fill(page: Page, cursors: list[_Cursor], *, records_max: int, bytes_max: int) -> None:
    """Take the oldest records of all cursors."""
    heap: list[tuple[int, int]] = []
    # If not all fit, the starting cursor rotates from read to read.
    first = sum(cursor.offset for cursor in cursors) % max(1, len(cursors))
    for number in (*range(first, len(cursors)), *range(first)):
        if (head := cursors[number].head()) is not None:
            heap.append((head.timestamp_ms, number))
    heapq.heapify(heap)
    room = bytes_max
    while heap and len(page.records) < records_max and room > 0:
        number = heap[0][1]
        cursor = cursors[number]
        record = cursor.take()
        page.records.append((cursor.partition, record))
        room -= record_size(record)
        if (head := cursor.head()) is not None:
            heapq.heapreplace(heap, (head.timestamp_ms, number))
        else:
            heapq.heappop(heap)
    page.places = [cursor.place() for cursor in cursors]


class _Cursor:
    """Iterates over one partition, a batch at a time."""

    __slots__ = (
        "_aborted",
        "_batch_end",
        "_data",
        "_head",
        "_is_committed_only",
        "_is_curable",
        "_page",
        "_position",
        "_records",
        "_until",
        "offset",
        "partition",
    )

    def __init__(
        self, place: Place, page: Page, is_curable: IsCurable, is_committed_only: bool
    ) -> None:
        self.partition = place.partition
        self.offset = place.offset
        self._page = page
        self._batch_end = place.offset
        self._until = place.until_offset
        self._data = b""
        self._position = 0
        self._records: Iterator[Record] = iter(())
        self._head: Record | None = None
        self._is_committed_only = is_committed_only
        self._is_curable = is_curable
        self._aborted = AbortedSpans()

    def head(self) -> Record | None:
        """The next record, which stays until it is taken; None at the end."""
        if self._head is None:
            self._head = self._next()
        return self._head

    def take(self) -> Record:
        record, self._head = self._head, None
        assert record is not None
        self.offset = record.offset + 1
        return record

    def place(self) -> Place:
        return Place(self.partition, self.offset, self._until)

    def close(self) -> None:
        """Release the batch, whose iterator refers to this cursor and so to the whole page."""
        self._records, self._head, self._data = iter(()), None, b""

    def _next(self) -> Record | None:
        for _ in range(EMPTY_BATCHES_MAX):
            try:
                for record in self._records:
                    if record.offset < self.offset:
                        continue
                    return None if self._is_beyond(record.offset) else record
                header = self._next_batch()
                if header is None:
                    return None
            except CorruptBatch as error:
                if not error.is_in_all_copies and self._is_curable(self.partition):
                    self._page.error = StorageFailed(
                        f"A part of {self.partition.name} is damaged on one node and is being "
                        "restored from another; retry."
                    )
                    return None
                self._step_over(error)
        return None

    def _next_batch(self) -> BatchHeader | None:
        """Go to the next batch; None if there are no more, or no room for it."""
        if self._page.room <= 0:
            return None
        if self._position >= len(self._data):
            if self._is_beyond(self.offset):
                return None
            batches = self.partition.read(
                self.offset, bytes_max=READ_BYTES, is_committed_only=self._is_committed_only
            )
            if batches is None:
                return None
            if self._is_committed_only:
                self._aborted = AbortedSpans(self.partition.aborted_in(batches))
            try:
                self._data, self._position = batches.read_checked(), 0
            except OSError as error:
                raise self.partition.unreadable(error, batches.offset) from error
            self._page.room -= len(self._data)
        header = read_header(self._data, self._position)
        batch = memoryview(self._data)[self._position : self._position + header.size]
        self._position += header.size
        self._batch_end = header.next_offset
        self._records = self._within(header, batch)
        return header

    def _within(self, header: BatchHeader, batch: memoryview) -> Iterator[Record]:
        if not header.is_control and not (self._aborted and self._aborted.cover(header)):
            yield from self._decoded(header, batch)
        # Whatever this batch holds, the next one begins there: compaction leaves gaps.
        if not self._is_beyond(header.next_offset - 1):
            self.offset = max(self.offset, header.next_offset)

    def _decoded(self, header: BatchHeader, batch: memoryview) -> Iterator[Record]:
        unpacked_before = meter.bytes_total
        try:
            payload = unpack_payload(batch, header)
        except CorruptBatch as error:
            error.is_in_all_copies = True
            raise
        finally:
            self._page.room -= meter.bytes_total - unpacked_before
        try:
            yield from decode_records(header, payload)
        except CorruptBatch as error:
            error.is_in_all_copies = True
            raise

    def _step_over(self, error: CorruptBatch) -> None:
        # Damage in a file gives the offset to continue at; undecodable records end with their
        # batch.
        following = self._batch_end if error.next_offset is None else error.next_offset
        following = max(following, self.offset + 1)
        # The traceback holds frames that refer to the decompressed data.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        self._page.damaged.append(Damaged(self.partition, self.offset, following, error))
        self.offset = following
        self._data, self._position, self._records = b"", 0, iter(())

    def _is_beyond(self, offset: int) -> bool:
        return self._until is not None and offset >= self._until


def record_size(record: Record) -> int:
    """The approximate size of a record in a response."""
    size = len(record.key or b"") + len(record.value or b"") + RECORD_BYTES
    for name, content in record.headers:
        size += len(name) + len(content or b"") + RECORD_BYTES
    return size


def _is_finished(place: Place) -> bool:
    return place.until_offset is not None and place.offset >= place.until_offset


def _nothing() -> None:
    """Do nothing: there is nothing to cancel."""
