"""One log: segments in a folder, appended at the end, read anywhere, forgotten from the start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from goqueue.model.batch import (
    BatchHeader,
    Record,
    decode_records,
    is_intact,
    read_header,
    unpack_payload,
)
from goqueue.model.errors import CorruptBatch
from goqueue.storage.disk import Disk, File
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.recovery import recover_segments
from goqueue.storage.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, segment_name

_START_FILE = "start-offset"
_START_MAGIC = b"GQSO"
_START_VERSION = 1


@dataclass(slots=True)
class LogSettings:
    """What may differ from topic to topic."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    is_deleting: bool = True  # cleanup policy contains "delete"
    is_compacting: bool = False  # cleanup policy contains "compact"
    dirty_ratio_min: float = 0.5
    tombstone_retention_ms: int = 24 * 3600 * 1000
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int = (1 << 63) - 1


class SegmentState(msgspec.Struct, array_like=True):
    base_offset: int
    size: int
    end_offset: int
    max_timestamp: int
    created_ms: int


class LogState(msgspec.Struct, array_like=True):
    """A closed log as it stands on disk, so that opening it again needs no look at its files."""

    start_offset: int
    segments: list[SegmentState]


class Slice(NamedTuple):
    """Whole batches in a file. `is_trusted` means that they may be sent without being read."""

    segment: Segment
    position: int
    length: int
    is_trusted: bool

    def read(self) -> bytes:
        """The batches' bytes, verified unless this process wrote them itself."""
        if self.is_trusted:
            return self.segment.file.read(self.position, self.length)
        return self.segment.read_checked(self.position, self.length)


class SyncPoint(NamedTuple):
    """What one round of syncing covers."""

    files: list[File]
    sealed: list[Segment]
    active: Segment
    position: int
    end_offset: int

    def sync(self) -> None:
        """Make it durable. Blocks, and may run outside the event loop."""
        for file in self.files:
            file.sync()


class Log:
    """Offsets `start_offset` to `end_offset`, the latter excluded."""

    __slots__ = (
        "_bases",
        "_disk",
        "_unsealed",
        "folder",
        "segments",
        "settings",
        "start_offset",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        settings: LogSettings,
        segments: list[Segment],
        start_offset: int,
    ) -> None:
        self._disk = disk
        self.folder = folder
        self.settings = settings
        self.segments = segments
        self.start_offset = max(start_offset, segments[0].base_offset)
        self._bases = [segment.base_offset for segment in segments]
        self._unsealed: list[Segment] = []

    @classmethod
    def recover(
        cls, disk: Disk, folder: str, settings: LogSettings, *, now_ms: int
    ) -> tuple[Log, list[str]]:
        """Open a log that may have been torn by a crash, or is not there yet."""
        start = _read_start(disk, folder)
        segments, reports = recover_segments(
            disk,
            folder,
            start_offset=start,
            now_ms=now_ms,
            index_interval_bytes=settings.index_interval_bytes,
        )
        return cls(disk, folder, settings, segments, start), reports

    @classmethod
    def reopen(cls, disk: Disk, folder: str, settings: LogSettings, state: LogState) -> Log:
        """Open a log that was closed, without touching its files."""
        segments = [
            Segment(
                disk,
                folder,
                one.base_offset,
                disk.open(f"{folder}/{segment_name(one.base_offset)}{LOG_SUFFIX}"),
                size=one.size,
                end_offset=one.end_offset,
                created_ms=one.created_ms,
                max_timestamp=one.max_timestamp,
            )
            for one in state.segments
        ]
        return cls(disk, folder, settings, segments, state.start_offset)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def append(self, batch: memoryview, header: BatchHeader, *, now_ms: int) -> None:
        """Write a batch that is stamped with the end offset."""
        active, settings = self.segments[-1], self.settings
        if active.size and (
            active.size + len(batch) > settings.segment_bytes
            or now_ms - active.created_ms >= settings.segment_ms
            or header.next_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ):
            active = self.roll(now_ms=now_ms)
        active.append(batch, header, index_interval_bytes=settings.index_interval_bytes)

    def roll(self, *, now_ms: int) -> Segment:
        """Begin a new segment. The old one is sealed when it has been synced."""
        old = self.segments[-1]
        new = Segment.create(self._disk, self.folder, old.end_offset, now_ms=now_ms)
        self._unsealed.append(old)
        self.segments.append(new)
        self._bases.append(new.base_offset)
        return new

    def sync_point(self) -> SyncPoint:
        """What must be synced so that everything appended so far is durable."""
        active = self.segments[-1]
        sealed = list(self._unsealed)
        files = [segment.file for segment in sealed]
        return SyncPoint([*files, active.file], sealed, active, active.size, active.end_offset)

    def synced(self, point: SyncPoint) -> None:
        """Take note that `point.sync()` has succeeded."""
        for segment in point.sealed:
            if segment in self._unsealed:
                self._unsealed.remove(segment)
                if segment in self.segments:
                    segment.seal()
        if point.active is self.segments[-1]:
            point.active.synced(point.position, point.end_offset)

    def read(self, offset: int, *, bytes_max: int, until_offset: int) -> Slice | None:
        """Whole batches from the one that holds `offset` on, ending before `until_offset`.

        There is at least one batch, however large, unless `offset` is at the end.
        """
        number = max(0, bisect_right(self._bases, offset) - 1)
        while number < len(self.segments):
            segment = self.segments[number]
            located = segment.locate(offset) if offset < segment.end_offset else None
            if located is not None:
                if located.header.base_offset >= until_offset:
                    return None
                return self._slice(segment, located.position, located.end, bytes_max, until_offset)
            number += 1
        return None

    def _slice(
        self, segment: Segment, start: int, first_end: int, bytes_max: int, until_offset: int
    ) -> Slice:
        limit = segment.size
        if until_offset < segment.end_offset:
            located = segment.locate(until_offset)
            limit = located.position if located is not None else segment.size
        end = limit
        if end - start > bytes_max:
            end = max(first_end, segment.cut_position(start + bytes_max, after=start))
        end = max(first_end, min(end, limit))
        return Slice(segment, start, end - start, start >= segment.trusted_from)

    def batches(self, offset: int, *, until_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Whole, verified batches one by one; damage raises `CorruptBatch`."""
        while offset < until_offset:
            part = self.read(offset, bytes_max=1 << 20, until_offset=until_offset)
            if part is None:
                return
            data = part.read()
            view, at = memoryview(data), 0
            while at < len(data):
                header = read_header(data, at)
                yield header, bytes(view[at : at + header.size])
                at += header.size
                offset = header.next_offset

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of all readable batches from the one that holds `offset` on."""
        for segment in list(self.segments):
            if segment.end_offset <= offset:
                continue
            try:
                located = segment.locate(offset)
            except CorruptBatch as error:
                resume = segment.resumes[error.position]
                located = None if resume is None else segment.locate(resume.offset)
            if located is not None:
                yield from (one.header for one in segment.readable(located.position))

    def find_timestamp(self, timestamp: int, *, until_offset: int) -> Record | None:
        """The first record at least as new as `timestamp`."""
        for segment in list(self.segments):
            if segment.max_timestamp < timestamp or segment.end_offset <= self.start_offset:
                continue
            start = max(segment.offset_before(timestamp), self.start_offset)
            located = segment.locate(start)
            for position, header in segment.readable(located.position if located else segment.size):
                if header.base_offset >= until_offset:
                    return None
                if header.max_timestamp < timestamp or header.last_offset < self.start_offset:
                    continue
                for record in self._records(segment, position, header):
                    if record.timestamp_ms >= timestamp and record.offset >= self.start_offset:
                        return record
        return None

    def find_newest(self, *, until_offset: int) -> Record | None:
        """The first record that has the largest timestamp of all."""
        candidates = [one for one in self.segments if one.end_offset > self.start_offset]
        if not candidates:
            return None
        segment = max(candidates, key=lambda one: one.max_timestamp)
        if segment.max_timestamp < 0:
            return None
        return self.find_timestamp(segment.max_timestamp, until_offset=until_offset)

    def _records(self, segment: Segment, position: int, header: BatchHeader) -> list[Record]:
        data = segment.file.read(position, header.size)
        if not is_intact(memoryview(data), header):
            raise segment.corrupt(position)
        return list(decode_records(header, unpack_payload(data, header)))

    def advance_start(self, offset: int) -> None:
        """Forget everything before `offset`, durably. Segments that are wholly before it can go."""
        if offset > self.start_offset:
            body = {"start_offset": offset}
            path = f"{self.folder}/{_START_FILE}"
            write_framed(self._disk, path, magic=_START_MAGIC, version=_START_VERSION, body=body)
            self.start_offset = offset

    def take_expired(self, *, now_ms: int, until_offset: int) -> list[Segment]:
        """Take out the segments that retention no longer wants; the caller removes their files."""
        settings, excess = self.settings, 0
        if settings.is_deleting and settings.retention_bytes >= 0:
            excess = self.size - settings.retention_bytes
        count = 0
        for segment in self.segments[:-1]:
            is_old = (
                settings.is_deleting
                and settings.retention_ms >= 0
                and now_ms - _age_timestamp(segment) > settings.retention_ms
            )
            is_excess = excess >= segment.size > 0
            is_before_start = segment.end_offset <= self.start_offset
            if segment.end_offset > until_offset or not (is_old or is_excess or is_before_start):
                break
            excess -= segment.size
            count += 1
        return self.take_segments(count)

    def take_segments(self, count: int) -> list[Segment]:
        """Take out the oldest `count` segments, which moves the start of the log."""
        taken = self.segments[:count]
        if taken:
            self.start_offset = max(self.start_offset, self.segments[count].base_offset)
            del self.segments[:count]
            del self._bases[:count]
        return taken

    def is_active_expired(self, now_ms: int) -> bool:
        """Whether even the newest record is older than retention wants."""
        settings, active = self.settings, self.segments[-1]
        return (
            settings.is_deleting
            and settings.retention_ms >= 0
            and active.size > 0
            and now_ms - _age_timestamp(active) > settings.retention_ms
        )

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Put rewritten segments in the place of the ones they were made from."""
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = new
        self._bases = [segment.base_offset for segment in self.segments]

    def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on; the batch that holds it goes as a whole."""
        while len(self.segments) > 1 and self.segments[-1].base_offset >= offset:
            gone = self.segments.pop()
            self._bases.pop()
            gone.remove()
        active = self.segments[-1]
        if active in self._unsealed:
            self._unsealed.remove(active)
        located = active.locate(offset) if offset < active.end_offset else None
        if located is not None:
            active.truncate(located.position, located.header.base_offset)

    def restart(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and begin again at `offset`."""
        for segment in self.segments:
            segment.remove()
        self._unsealed.clear()
        self.segments = [Segment.create(self._disk, self.folder, offset, now_ms=now_ms)]
        self._bases = [offset]
        self.start_offset = offset

    def close(self) -> LogState:
        """Write the indexes and give the descriptors back; everything must be synced before."""
        for segment in self.segments:
            segment.index.write_pending(second_max=1 << 62, at_once=True)
            segment.times.write_pending(second_max=1 << 62, at_once=True)
            segment.close()
        return LogState(
            self.start_offset,
            [
                SegmentState(
                    one.base_offset, one.size, one.end_offset, one.max_timestamp, one.created_ms
                )
                for one in self.segments
            ],
        )


def _age_timestamp(segment: Segment) -> int:
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def _read_start(disk: Disk, folder: str) -> int:
    path = f"{folder}/{_START_FILE}"
    body = read_framed(disk, path, magic=_START_MAGIC, version=_START_VERSION, body=dict[str, int])
    return body["start_offset"] if body else 0
