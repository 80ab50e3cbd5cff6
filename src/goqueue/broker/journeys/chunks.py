"""Where a partition of the journal has events of which messages: a coarse index in memory.

Days of events are not read for a query. The partition is divided into chunks of about a mebibyte;
of each it is known which partitions its events are about, between which offsets, and when it was
written. The index is built from the keys of the records when the first query needs it, a slice in
each turn of the event loop, and then continued; what retention has removed is dropped.

Its memory is bounded: when it has too many entries, neighbouring chunks are joined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from goqueue.model.batch import Record, decode_batch
from goqueue.model.errors import CorruptBatch
from goqueue.partition import Partition
from goqueue.tracing.encoding import is_events

CHUNK_BYTES = 1 << 20
SLICE_BYTES = 512 << 10  # read in one turn
ENTRIES_MAX = 200_000  # of all chunks: some 40 MB

# As `encode_events` writes keys: after two bytes the topic id, the partition and the offsets.
_RANGE = struct.Struct(">QQ")
_PLACE = slice(2, 22)
_RANGE_AT = 22

PlaceKey = bytes


def place_key(topic_id: bytes, partition: int) -> PlaceKey:
    return topic_id + partition.to_bytes(4, "big")


def place_and_range(key: bytes) -> tuple[PlaceKey, int, int]:
    """Return which partition the events of a record are about, and between which offsets."""
    first, end = _RANGE.unpack_from(key, _RANGE_AT)
    return key[_PLACE], first, end


@dataclass(slots=True)
class Chunk:
    """A part of the journal: its offsets, its size, when it was written, and what it is about."""

    first_offset: int
    end_offset: int
    size: int = 0
    newest_ms: int = -1
    places: dict[PlaceKey, tuple[int, int]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        self.newest_ms = max(self.newest_ms, record.timestamp_ms)
        if record.key is not None and is_events(record.key):
            place, first, end = place_and_range(record.key)
            self._widen(place, first, end)

    def join(self, other: Chunk) -> None:
        """Take in the chunk that follows."""
        self.end_offset = other.end_offset
        self.size += other.size
        self.newest_ms = max(self.newest_ms, other.newest_ms)
        for place, (first, end) in other.places.items():
            self._widen(place, first, end)

    def _widen(self, place: PlaceKey, first: int, end: int) -> None:
        known = self.places.get(place)
        if known is not None:
            first, end = min(first, known[0]), max(end, known[1])
        self.places[place] = first, end

    def may_have(self, place: PlaceKey | None, first: int, end: int, from_ms: int | None) -> bool:
        """Return whether it may have events about messages, not older than a time.

        Events are written after they happened: a chunk has none that are newer than itself.
        """
        if from_ms is not None and self.newest_ms < from_ms:
            return False
        if place is None:
            return bool(self.places)
        found = self.places.get(place)
        return found is not None and found[0] < end and first < found[1]


class JournalIndex:
    """The chunks of one partition of the journal."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.chunks: list[Chunk] = []
        self._entries = 0
        self._chunk_bytes = CHUNK_BYTES

    @property
    def end_offset(self) -> int:
        """Return up to where it is built."""
        return self.chunks[-1].end_offset if self.chunks else self.partition.start_offset

    @property
    def is_complete(self) -> bool:
        return self.end_offset >= self.partition.high_watermark

    def extend(self) -> None:
        """Read another slice of the journal."""
        partition = self.partition
        while self.chunks and self.chunks[0].end_offset <= partition.start_offset:
            self._entries -= len(self.chunks.pop(0).places)
        start, end = self.end_offset, partition.high_watermark
        if start > end:
            self.chunks.clear()  # The log was truncated by an unclean election.
            self._entries, start = 0, partition.start_offset
        chunk = self._open(max(start, partition.start_offset))
        before = len(chunk.places)
        for size, next_offset, records in slices(partition, chunk.end_offset, end):
            for record in records:
                chunk.add(record)
            chunk.size += size
            chunk.end_offset = next_offset
            break
        else:
            chunk.end_offset = end
        self._entries += len(chunk.places) - before
        if self._entries > ENTRIES_MAX:
            self._halve()

    def _open(self, offset: int) -> Chunk:
        """Return the last chunk, or a new one if that is full."""
        if not self.chunks or self.chunks[-1].size >= self._chunk_bytes:
            self.chunks.append(Chunk(offset, offset))
        return self.chunks[-1]

    def _halve(self) -> None:
        """Join chunks in pairs."""
        self._chunk_bytes *= 2
        for one, other in list(pairwise(self.chunks))[::2]:
            one.join(other)
        self.chunks = self.chunks[::2]
        self._entries = sum(len(one.places) for one in self.chunks)


def slices(
    partition: Partition, offset: int, until_offset: int
) -> Iterator[tuple[int, int, list[Record]]]:
    """Yield the records of about `SLICE_BYTES` each; their size, and where the next ones begin.

    Damaged batches are skipped.
    """
    size, records = 0, list[Record]()
    while offset < until_offset:
        try:
            for header, batch in partition.log.batches(offset, until_offset=until_offset):
                if not header.is_control:
                    records += decode_batch(batch)
                offset = header.next_offset
                size += header.size
                if size >= SLICE_BYTES:
                    yield size, offset, records
                    size, records = 0, []
            break
        except CorruptBatch as error:
            following = error.next_offset
            if following is None or following <= offset:
                break
            offset = following
    if size:
        yield size, offset, records
