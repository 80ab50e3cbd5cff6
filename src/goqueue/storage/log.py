"""One log: segments in a folder, appended at the end, read anywhere, deleted from the start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import msgspec

from goqueue.model.batch import BatchHeader, read_header
from goqueue.storage.commit_journal import Tail
from goqueue.storage.damage import RELATIVE_OFFSET_MAX, Located, Place
from goqueue.storage.disk import Disk, File
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.recovery import recover_segments
from goqueue.storage.segment import EPOCH_MAX, LOG_SUFFIX, Segment, SegmentState, segment_name
from goqueue.storage.swap import begin_swap, finish_swap

_START_FILE = "start-offset"
_START_MAGIC = b"GQSO"
_CLEANED_FILE = "cleaned-offset"
_CLEANED_MAGIC = b"GQCO"
_VERSION = 1
_READ_BYTES = 1 << 20

_aborted_count = attrgetter("indexes.aborted_count")


@dataclass(slots=True)
class LogSettings:
    """The settings that may differ between topics."""

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


class LogState(msgspec.Struct, array_like=True):
    """State of a cleanly closed log, from which it opens without reading its files."""

    start_offset: int
    segments: list[SegmentState]
    cleaned_offset: int = 0


class SyncPoint(NamedTuple):
    """What one round of syncing covers."""

    files: list[File]
    sealed: list[Segment]
    active: Segment
    position: int
    end_offset: int
    index_files: list[File]

    @property
    def tail_bytes(self) -> int | None:
        """Return how much would have to go to the commit journal; None if it cannot.

        A new segment is synced itself, so that its name is durable, and so is a closed one.
        """
        start = self.active.durable_to
        if self.sealed or self.index_files or not start:
            return None
        return self.position - start

    def tail(self, log_key: bytes) -> Tail:
        """Return what the commit journal must store to make everything up to here durable."""
        start = self.active.durable_to
        data = self.active.file.read(start, self.position - start)
        return Tail(log_key, self.active.base_offset, start, data)

    def sync(self) -> None:
        """Make it durable. Blocks, and may run outside the event loop."""
        for file in self.files:
            file.sync()
        for file in self.index_files:
            try:
                file.sync()
            except OSError:
                pass  # Indexes are rebuilt if they are lost.


class Slice(NamedTuple):
    """Whole batches in a file; if `is_trusted` they may be sent unverified (zero-copy)."""

    segment: Segment
    position: int
    length: int
    is_trusted: bool
    offset: int  # of the first batch
    end_offset: int  # after the last batch

    @property
    def file(self) -> File:
        return self.segment.file

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


class Log:
    """Offsets `start_offset` to `end_offset`, the latter excluded."""

    __slots__ = (
        "_bases",
        "_epoch_max",
        "_index_files",
        "_unsealed",
        "active",
        "cleaned_offset",
        "disk",
        "end_offset",
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
        *,
        start_offset: int,
        cleaned_offset: int,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.settings = settings
        self.start_offset = max(start_offset, segments[0].base_offset)
        self._set_segments(segments)
        # Up to here compaction has removed duplicate keys.
        self.cleaned_offset = cleaned_offset
        self._unsealed: list[Segment] = []
        self._index_files: list[File] = []
        self._epoch_max = EPOCH_MAX

    @classmethod
    def recover(
        cls,
        disk: Disk,
        folder: str,
        settings: LogSettings,
        *,
        now_ms: int,
        before_cut: Callable[[], None] = lambda: None,
    ) -> tuple[Log, list[str]]:
        """Open a log that may have been torn by a crash, or does not exist yet.

        `before_cut` is called before something at the end is truncated as never acknowledged.
        """
        start = _read_offset(disk, f"{folder}/{_START_FILE}", _START_MAGIC)
        cleaned = _read_offset(disk, f"{folder}/{_CLEANED_FILE}", _CLEANED_MAGIC)
        segments, reports = recover_segments(
            disk,
            folder,
            start_offset=start,
            now_ms=now_ms,
            index_interval_bytes=settings.index_interval_bytes,
            before_cut=before_cut,
        )
        log = cls(disk, folder, settings, segments, start_offset=start, cleaned_offset=cleaned)
        log.cleaned_offset = min(cleaned, log.end_offset)
        if start > log.end_offset:
            # What was deleted had not been synced. Offsets are never reused.
            log.restart(start, now_ms=now_ms)
        return log, reports

    @classmethod
    def reopen(cls, disk: Disk, folder: str, settings: LogSettings, state: LogState) -> Log:
        """Open a cleanly closed log without reading its files."""
        last = state.segments[-1]
        segments = [
            Segment(disk, folder, _closed_file(disk, folder, one), one, is_sealed=one is not last)
            for one in state.segments
        ]
        return cls(
            disk,
            folder,
            settings,
            segments,
            start_offset=state.start_offset,
            cleaned_offset=state.cleaned_offset,
        )

    def _set_segments(self, segments: list[Segment]) -> None:
        """Set the segments, and what is derived from them for the sake of appends and reads."""
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.end_offset = self.active.end_offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def has_unsealed(self) -> bool:
        """Return whether closed segments wait for a sync to be sealed."""
        return bool(self._unsealed)

    @property
    def epoch_max(self) -> int:
        return self._epoch_max

    @epoch_max.setter
    def epoch_max(self, epoch: int) -> None:
        """Set the current epoch: a stored batch with a later one is damaged."""
        for segment in self.segments:
            segment.epoch_max = epoch
            if epoch < self._epoch_max:
                segment.trusted_from = segment.size  # not verified against this epoch yet
        self._epoch_max = epoch

    # Writes

    def append(self, batch: memoryview, header: BatchHeader, *, now_ms: int) -> None:
        """Append a batch that is stamped with the end offset."""
        active = self._segment_for(len(batch), header.next_offset, now_ms)
        active.append(batch, header, index_interval_bytes=self.settings.index_interval_bytes)
        self.end_offset = active.end_offset

    def append_run(self, run: bytes, next_offset: int, *, now_ms: int) -> None:
        """Append batches stamped with the end offset and those after it: all or none."""
        active = self._segment_for(len(run), next_offset, now_ms)
        interval = self.settings.index_interval_bytes
        active.append_run(run, next_offset, index_interval_bytes=interval)
        self.end_offset = next_offset

    def _segment_for(self, size: int, next_offset: int, now_ms: int) -> Segment:
        """Return the newest segment, or a new one if that is full."""
        active, settings = self.active, self.settings
        if active.size and (
            active.size + size > settings.segment_bytes
            or now_ms - active.created_ms >= settings.segment_ms
            or next_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ):
            return self.roll(now_ms=now_ms)
        return active

    def roll(self, *, now_ms: int) -> Segment:
        """Start a new segment. The old one is sealed once it has been synced."""
        new = Segment.create(self.disk, self.folder, self.end_offset, now_ms=now_ms)
        new.epoch_max = self._epoch_max
        self._unsealed.append(self.active)
        self.segments.append(new)
        self._bases.append(new.base_offset)
        self.active = new
        return new

    def sync_point(self) -> SyncPoint:
        """Return what to sync so that everything appended so far is durable."""
        active, sealed = self.active, list(self._unsealed)
        files = [segment.file for segment in sealed]
        indexes, self._index_files = self._index_files, []
        return SyncPoint(
            [*files, active.file], sealed, active, active.size, active.end_offset, indexes
        )

    def synced(self, point: SyncPoint) -> None:
        """Note that `point.sync()` has succeeded."""
        self.journaled(point)
        try:
            for segment in point.sealed:
                if segment in self._unsealed:
                    segment.seal()
                    self._unsealed.remove(segment)
                    self._index_files += segment.indexes.files
            if point.active is self.active:
                indexes = point.active.indexes
                indexes.write_synced(min(point.position, point.active.size), point.end_offset)
                self._index_files += indexes.take_grown()
        except OSError:
            pass  # No space for index entries; they stay in memory until there is.

    def journaled(self, point: SyncPoint) -> None:
        """Note that `point.tail()` is durable in the commit journal."""
        active = point.active
        active.durable_to = max(active.durable_to, min(point.position, active.size))

    # Reads

    @property
    def damaged_from(self) -> int | None:
        """Return the first offset that a read found damaged; None if there is none.

        Damage that no read has met is unknown here. What begins before the start of the log counts
        as long as it reaches beyond.
        """
        offsets = [
            max(damage.place.offset, self.start_offset)
            for segment in self.segments
            if segment.damages
            for damage in segment.damages.values()
            if damage.place.offset >= self.start_offset
            or (damage.resume or damage.end).offset > self.start_offset
        ]
        return min(offsets, default=None)

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
        start, header = first
        end = one = Place(start + header.size, header.next_offset)
        if bytes_max > header.size:
            end = Place(segment.size, segment.end_offset)
            if until_offset < end.offset:
                end = segment.place_of(until_offset)
            if end.position - start > bytes_max:
                end = min(end, segment.cut_place(start + bytes_max, after=one))
            end = max(end, one)
        segment.remember(end)
        is_trusted, length = start >= segment.trusted_from, end.position - start
        return Slice(segment, start, length, is_trusted, header.base_offset, end.offset)

    def segments_from(self, offset: int) -> list[Segment]:
        """Return the segment with an offset, and those after it."""
        return self.segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def has_aborted(self, offset: int) -> bool:
        """Return whether there may be aborted transactions with records from `offset` on."""
        number = max(0, bisect_right(self._bases, offset) - 1)
        return any(map(_aborted_count, self.segments[number:]))

    def safe_before(self, offset: int) -> int:
        """Return where to truncate the log if the disk cannot read what is at `offset`."""
        segment = self.segments[max(0, bisect_right(self._bases, offset) - 1)]
        try:
            found = segment.place_of_page(offset).offset
        except OSError:
            found = segment.base_offset
        return max(self.start_offset, found)

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

    # Deletion

    def advance_start(self, offset: int) -> None:
        """Delete everything before `offset`, durably. Segments wholly before it can be removed."""
        if offset > self.start_offset:
            self._write_start(offset)

    def mark_cleaned(self, offset: int) -> None:
        """Record durably that compaction has reached `offset`."""
        self.cleaned_offset = offset
        _write_offset(self.disk, f"{self.folder}/{_CLEANED_FILE}", _CLEANED_MAGIC, offset)

    def take_segments(self, count: int) -> list[Segment]:
        """Take out the oldest `count` segments, which moves the start of the log."""
        taken = self.segments[:count]
        if taken:
            self.start_offset = max(self.start_offset, self.segments[count].base_offset)
            del self.segments[:count]
            del self._bases[:count]
            self._unsealed = [one for one in self._unsealed if one not in taken]
        return taken

    def has_run(self, segments: list[Segment]) -> bool:
        """Return whether these segments are still here, one after the other."""
        if segments[0] not in self.segments:
            return False
        first = self.segments.index(segments[0])
        return self.segments[first : first + len(segments)] == segments

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace segments by rewritten ones."""
        first = self.segments.index(old[0])
        self._set_segments([*self.segments[:first], *new, *self.segments[first + len(old) :]])
        for segment in new:
            segment.epoch_max = self._epoch_max

    def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on, with the whole batch that contains it. Blocks."""
        if offset < self.segments[0].base_offset:
            self.restart(offset, now_ms=self.active.created_ms)
            return
        kept = max(1, bisect_right(self._bases, offset - 1))
        self._drop(self.segments[kept:])
        self._set_segments(self.segments[:kept])
        active = self.active
        self._unsealed = [one for one in self._unsealed if one in self.segments[:-1]]
        # A sealed segment grows again even if nothing of it is dropped, so its seal must go.
        if offset < active.end_offset or active.is_sealed:
            try:
                active.truncate(active.truncation_place(offset))
            finally:
                self.end_offset = active.end_offset
        if self.cleaned_offset > self.end_offset:
            self.mark_cleaned(self.end_offset)
        if self.start_offset > self.end_offset:
            self._write_start(self.end_offset)

    def restart(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and start again at `offset`. Blocks."""
        self._write_start(offset)
        self._drop(self.segments)
        self._unsealed.clear()
        self._set_segments([Segment.create(self.disk, self.folder, offset, now_ms=now_ms)])
        self.active.epoch_max = self._epoch_max
        if self.cleaned_offset:
            self.mark_cleaned(offset)

    def _drop(self, segments: list[Segment]) -> None:
        """Remove the files of segments atomically."""
        there = [one for one in segments if self.disk.exists(one.file.path)]
        if there:
            removed = [segment.base_offset for segment in there]
            begin_swap(self.disk, self.folder, removed=removed, added=[])
            for segment in there:
                segment.retire()
            finish_swap(self.disk, self.folder)

    def _write_start(self, offset: int) -> None:
        write_start_offset(self.disk, self.folder, offset)
        self.start_offset = offset

    def close(self) -> LogState:
        """Write the indexes and close the files; everything must be synced before."""
        for segment in self._unsealed:
            segment.seal()
        self._unsealed.clear()
        for segment in self.segments:
            segment.indexes.write_all()
            segment.close()
        states = [segment.state() for segment in self.segments]
        return LogState(self.start_offset, states, self.cleaned_offset)


def _closed_file(disk: Disk, folder: str, state: SegmentState) -> File:
    """Return the file of a segment; an empty one may not exist and is created when needed."""
    path = f"{folder}/{segment_name(state.base_offset)}{LOG_SUFFIX}"
    return disk.open(path) if state.size else disk.create(path, lazily=True)


def _read_offset(disk: Disk, path: str, magic: bytes) -> int:
    body = read_framed(disk, path, magic=magic, version=_VERSION, body=dict[str, int])
    return body["offset"] if body else 0


def write_start_offset(disk: Disk, folder: str, offset: int) -> None:
    """Record durably that everything before `offset` is deleted."""
    _write_offset(disk, f"{folder}/{_START_FILE}", _START_MAGIC, offset)


def _write_offset(disk: Disk, path: str, magic: bytes, offset: int) -> None:
    write_framed(disk, path, magic=magic, version=_VERSION, body={"offset": offset})
