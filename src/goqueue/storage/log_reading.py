"""Reads of a log: batches by offset, their headers, records by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from goqueue.model.batch import (
    BatchHeader,
    Record,
    decode_records,
    read_header,
    unpack_payload,
)
from goqueue.model.errors import CorruptBatch
from goqueue.storage.disk import File
from goqueue.storage.scanning import Located, Place
from goqueue.storage.segment import Segment

_READ_BYTES = 1 << 20


class Slice(NamedTuple):
    """Whole batches in a file; if `is_trusted` they may be sent unverified (zero-copy)."""

    segment: Segment
    position: int
    length: int
    is_trusted: bool
    offset: int  # of the first batch

    @property
    def file(self) -> File:
        return self.segment.file

    @property
    def end_offset(self) -> int:
        """Return the offset after the last batch."""
        return self.segment.offset_at(self.position + self.length)

    def read(self) -> bytes:
        """Return the bytes of the batches, verified unless this process wrote them.

        Damage ends what is returned; damage in the very first batch raises `CorruptBatch`.
        """
        if self.is_trusted:
            return self.segment.file.read(self.position, self.length)
        return self.read_checked()

    def read_checked(self) -> bytes:
        """Return the same, always verified, for records passed on without their checksum."""
        return self.segment.read_checked(Place(self.position, self.offset), self.length)


class ReadableLog:
    """The segments as readers see them; `Log` adds writing."""

    __slots__ = ("_bases", "segments", "start_offset")

    def __init__(self, segments: list[Segment], *, start_offset: int) -> None:
        self.segments = segments
        self.start_offset = max(start_offset, segments[0].base_offset)
        self._bases = [segment.base_offset for segment in segments]

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def damaged_from(self) -> int | None:
        """Return the first offset that a read found damaged; None if there is none.

        Damage that no read has met is unknown here.
        """
        offsets = [
            damage.place.offset
            for segment in self.segments
            if segment.damages
            for damage in segment.damages.values()
            if damage.place.offset >= self.start_offset
        ]
        return min(offsets, default=None)

    # Batches

    def read(self, offset: int, *, bytes_max: int, until_offset: int) -> Slice | None:
        """Return whole batches from the one that contains `offset` on, before `until_offset`.

        There is at least one batch, however large, unless `offset` is at the end. Damage raises
        `CorruptBatch`, whose `next_offset` is where to continue.
        """
        number = max(0, bisect_right(self._bases, offset) - 1)
        while number < len(self.segments):
            segment = self.segments[number]
            located = segment.locate(offset)
            if located is not None:
                if located.header.base_offset >= until_offset:
                    return None
                return self._slice(segment, located, bytes_max, until_offset)
            number += 1
        return None

    def _slice(self, segment: Segment, first: Located, bytes_max: int, until_offset: int) -> Slice:
        end = Place(segment.size, segment.end_offset)
        if until_offset < segment.end_offset:
            end = place_of(segment, until_offset)
        start = Place(first.position, first.header.base_offset)
        if end.position - start.position > bytes_max:
            end = min(end, segment.cut_place(start.position + bytes_max, after=start))
        end = max(end, first.after)
        segment.remember(end)
        is_trusted = start.position >= segment.trusted_from
        return Slice(
            segment, start.position, end.position - start.position, is_trusted, start.offset
        )

    def distrust(self, offset: int) -> None:
        """Verify again what is read from here: a reader may have received damaged bytes."""
        segment = self.segments[max(0, bisect_right(self._bases, offset) - 1)]
        segment.trusted_from = segment.size

    def batches(self, offset: int, *, until_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield whole, verified batches one by one; damage raises `CorruptBatch`."""
        while offset < until_offset:
            part = self.read(offset, bytes_max=_READ_BYTES, until_offset=until_offset)
            if part is None:
                return
            # The caller acts on the content, so bytes that this process wrote are verified as well.
            place = Place(part.position, part.offset)
            data = part.segment.read_checked(place, part.length)
            view, at = memoryview(data), 0
            while at < len(data):
                header = read_header(data, at)
                yield header, bytes(view[at : at + header.size])
                at += header.size
                offset = header.next_offset

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers of all readable batches from the one that contains `offset` on."""
        return (located.header for _, located in self.located(offset))

    def located(self, offset: int) -> Iterator[tuple[Segment, Located]]:
        """Yield the same, with their segments and positions."""
        for segment in list(self.segments):
            if segment.end_offset > offset:
                for located in segment.readable(offset):
                    yield segment, located

    # Records by time

    def find_timestamp(self, timestamp: int, *, until_offset: int) -> Record | None:
        """Return the first readable record at least as new as `timestamp`."""
        for segment in list(self.segments):
            if segment.end_offset <= self.start_offset or segment.max_timestamp < timestamp:
                continue
            start = max(segment.offset_before(timestamp), self.start_offset)
            for located in segment.readable(start):
                if located.header.base_offset >= until_offset:
                    return None
                if located.header.max_timestamp < timestamp or located.header.is_control:
                    continue
                for record in records_of(segment, located):
                    if record.timestamp_ms >= timestamp and record.offset >= self.start_offset:
                        return record
        return None

    def find_newest(self, *, until_offset: int) -> Record | None:
        """Return the first record that has the largest timestamp of all."""
        newest = max(
            (one.max_timestamp for one in self.segments if one.end_offset > self.start_offset),
            default=-1,
        )
        return self.find_timestamp(newest, until_offset=until_offset) if newest >= 0 else None


def place_of(segment: Segment, offset: int) -> Place:
    """Return where the batch, or the damage, that contains `offset` starts."""
    try:
        located = segment.locate(offset)
    except CorruptBatch as error:
        return segment.damages[error.position].place
    if located is None:
        return Place(segment.size, segment.end_offset)
    return Place(located.position, located.header.base_offset)


def records_of(segment: Segment, located: Located) -> list[Record]:
    """Return the records of a batch; none if it is damaged, since it is unreadable."""
    data = segment.read_batch(located)
    if data is None:
        return []
    return list(decode_records(located.header, unpack_payload(data, located.header)))
