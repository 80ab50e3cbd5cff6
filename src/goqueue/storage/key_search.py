"""Searching a segment for records, a bounded part at a time, outside the event loop.

A search knows conditions on keys, trace ids, headers and bytes, and returns offsets. It reads
whole batches without making objects of their records, skips what the key filters rule out, and
builds missing filters from what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.model.batch import HEADER_BYTES, BatchHeader, read_header, unpack_payload
from goqueue.model.compression import Buffer
from goqueue.model.errors import CorruptBatch
from goqueue.model.scanning import (
    AT_COMPRESSED,
    AT_DAMAGE,
    Wanted,
    find,
    find_records,
    hashes,
    record_hashes,
)
from goqueue.storage.damage import Place
from goqueue.storage.disk import Disk, File
from goqueue.storage.index import KEYS_SUFFIX
from goqueue.storage.key_filters import BLOCK_BYTES, Block, KeyFilters, build_block, hashes_of
from goqueue.storage.segment import Segment, segment_name


class Part(NamedTuple):
    """A part of a segment to search."""

    start: Place
    end: Place


@dataclass(slots=True)
class Found:
    """What a step has found, and where it has stopped."""

    place: Place
    offsets: list[int] = field(default_factory=list)
    read_bytes: int = 0
    skipped_bytes: int = 0  # by filters
    damaged: Place | None = None  # where the next step must not start
    blocks: list[Block] = field(default_factory=list)


class SegmentSearch:
    """A search of one segment, in steps. `close` it afterwards, in the thread of the log.

    If nothing is `wanted`, it only builds the filters that are missing.
    `step` blocks, and may run outside the event loop, but never twice at once.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segment: Segment,
        part: Part,
        wanted: Wanted | None,
        *,
        builds: bool,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        path = f"{folder}/{segment_name(segment.base_offset)}{KEYS_SUFFIX}"
        self.segment = segment
        self.place = part.start
        self._end = part.end
        self._file: File = segment.file
        self._size = segment.size
        self._is_sealed = segment.is_sealed
        self._wanted = wanted
        self._hashes = [] if wanted is None else hashes_of(wanted)
        self._builds = builds
        self._block_bytes = block_bytes
        self._filters = KeyFilters(disk, path, segment.base_offset)
        self._is_loaded = False
        self._file.pin()

    @property
    def is_done(self) -> bool:
        return self.place.position >= self._end.position

    def close(self) -> None:
        self._file.unpin()

    def keep(self, found: Found) -> None:
        """Write the filters that a step has built; the segment must still be in its log."""
        if found.blocks:
            self._filters.append(found.blocks)

    def resume(self, place: Place) -> None:
        """Continue after a damaged part. What follows it cannot have filters."""
        self.place, self._builds = place, False

    def step(self, *, bytes_max: int, offsets_max: int) -> Found:
        """Search on, until about so many bytes are read or so many records are found."""
        if not self._is_loaded:
            self._is_loaded = True
            if self._hashes or self._builds:
                self._filters.load(self._file, self._size)
        found = Found(self.place)
        for part, has_filter in self._parts():
            if part.start.position > self.place.position:
                found.skipped_bytes += part.start.position - self.place.position
                self.place = part.start
            builds = self._builds and not has_filter
            is_enough = self._search(
                part, found, builds=builds, bytes_max=bytes_max, offsets_max=offsets_max
            )
            if found.damaged is not None or is_enough:
                break
        else:
            found.skipped_bytes += max(0, self._end.position - self.place.position)
            self.place = max(self.place, self._end)
        found.place = self.place
        return found

    def _parts(self) -> Iterator[tuple[Part, bool]]:
        """Yield the parts that may have what is wanted, and whether filters say so."""
        filters, begin, end = self._filters, self.place, self._end
        for block in filters.blocks if self._wanted is not None else ():
            is_inside = block.end.position > begin.position and block.start < end
            if is_inside and block.may_have(self._hashes):
                yield Part(max(block.start, begin), min(block.end, end)), True
        rest = max(filters.end, begin)
        if rest < end:
            yield Part(rest, end), False

    def _search(
        self, part: Part, found: Found, *, builds: bool, bytes_max: int, offsets_max: int
    ) -> bool:
        """Search a part in windows of whole batches; return whether it is enough for a step."""
        # Filters have no gaps, so new ones can only continue them.
        builds = builds and part.start == self._filters.end
        is_enough = False
        while self.place.position < part.end.position and not is_enough:
            if self._wanted is None and not builds:
                self.place = self._end  # What is left is too short for a filter.
                break
            window = _Window(self._file, self.place, part.end.position, self._block_bytes)
            window.scan(self._wanted, with_hashes=builds)
            found.offsets += window.offsets
            found.read_bytes += window.end.position - window.start.position
            self.place = window.end
            if window.is_damaged:
                found.damaged = window.end
                break
            if builds and (builds := self._deserves_filter(window, part)):
                found.blocks.append(window.block())
            is_enough = found.read_bytes >= bytes_max or len(found.offsets) >= offsets_max
        return is_enough

    def _deserves_filter(self, window: _Window, part: Part) -> bool:
        """Return whether a window is not the short end of what still grows."""
        is_long = window.end.position - window.start.position >= self._block_bytes // 2
        is_end = self._is_sealed and window.end.position == self._size
        return is_long or is_end or window.end < part.end


class _Window:
    """Some consecutive whole batches: as many as fit, and one in any case."""

    def __init__(self, file: File, start: Place, until: int, size_max: int) -> None:
        self.start = self.end = start
        self.last = -1  # where the last batch begins in the bytes
        self.offsets: list[int] = []
        self.is_damaged = False
        self._hashes: list[bytes] = []
        self._data = file.read(start.position, min(size_max, until - start.position))
        size = _batch_size(self._data)
        if len(self._data) < size <= until - start.position:
            self._data = file.read(start.position, size)

    def block(self) -> Block:
        return build_block(self.start, self.end, self.last, self._data, b"".join(self._hashes))

    def scan(self, wanted: Wanted | None, *, with_hashes: bool) -> None:
        """Find what is wanted, and hash everything if that is requested."""
        view = memoryview(self._data)
        at, offset, stop = 0, self.start.offset, AT_COMPRESSED
        while stop == AT_COMPRESSED:
            first, first_offset = at, offset
            if with_hashes:
                hashed, at, offset, stop, last = hashes(view, at, offset)
                self._hashes.append(hashed)
                if wanted is not None:
                    self.offsets += find(view[:at], first, first_offset, *wanted)[0]
            else:
                assert wanted is not None
                offsets, at, offset, stop, last = find(view, at, offset, *wanted)
                self.offsets += offsets
            self.last = last if last >= 0 else self.last
            if stop == AT_COMPRESSED:
                self.last = at
                at, offset = self._scan_compressed(at, wanted, with_hashes)
        self.is_damaged = stop == AT_DAMAGE or at == 0
        self.end = Place(self.start.position + at, offset)

    def _scan_compressed(
        self, at: int, wanted: Wanted | None, with_hashes: bool
    ) -> tuple[int, int]:
        """Scan a compressed batch; return where the next one starts, and its offset."""
        header = read_header(self._data, at)
        try:
            payload = unpack_payload(memoryview(self._data)[at : at + header.size], header)
            self._scan_payload(header, payload, wanted, with_hashes)
        except CorruptBatch:
            pass  # No reader can decode it either.
        return at + header.size, header.next_offset

    def _scan_payload(
        self, header: BatchHeader, payload: Buffer, wanted: Wanted | None, with_hashes: bool
    ) -> None:
        count, base = header.record_count, header.base_offset
        if wanted is not None:
            self.offsets += find_records(payload, count, base, *wanted)
        if with_hashes:
            self._hashes.append(record_hashes(payload, count))


def _batch_size(data: bytes) -> int:
    """Return the size of the batch at the start; 0 if not even its header is there."""
    return read_header(data).size if len(data) >= HEADER_BYTES else 0
