"""One log: segments in a folder, appended at the end, read anywhere, deleted from the start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from goqueue.model.batch import BatchHeader
from goqueue.storage.commit_journal import Tail
from goqueue.storage.disk import Disk, File
from goqueue.storage.framed import read_framed, write_framed
from goqueue.storage.log_reading import ReadableLog, place_of
from goqueue.storage.log_reading import Slice as Slice
from goqueue.storage.recovery import recover_segments
from goqueue.storage.scanning import EPOCH_MAX, RELATIVE_OFFSET_MAX
from goqueue.storage.segment import LOG_SUFFIX, Segment, segment_name
from goqueue.storage.swap import begin_swap, finish_swap

_START_FILE = "start-offset"
_START_MAGIC = b"GQSO"
_CLEANED_FILE = "cleaned-offset"
_CLEANED_MAGIC = b"GQCO"
_VERSION = 1


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


class SegmentState(msgspec.Struct, array_like=True):
    base_offset: int
    size: int
    end_offset: int
    max_timestamp: int
    created_ms: int
    aborted_count: int = 0


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


class Log(ReadableLog):
    """Offsets `start_offset` to `end_offset`, the latter excluded."""

    __slots__ = (
        "_disk",
        "_epoch_max",
        "_index_files",
        "_unsealed",
        "cleaned_offset",
        "folder",
        "settings",
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
        super().__init__(segments, start_offset=start_offset)
        self._disk = disk
        self.folder = folder
        self.settings = settings
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
        segments = [
            Segment(
                disk,
                folder,
                one.base_offset,
                _closed_file(disk, f"{folder}/{segment_name(one.base_offset)}{LOG_SUFFIX}", one),
                size=one.size,
                end_offset=one.end_offset,
                created_ms=one.created_ms,
                max_timestamp=one.max_timestamp,
                aborted_count=one.aborted_count,
                is_sealed=one is not state.segments[-1],
            )
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

    def append_run(self, run: bytes, next_offset: int, *, now_ms: int) -> None:
        """Append batches stamped with the end offset and those after it: all or none."""
        active = self._segment_for(len(run), next_offset, now_ms)
        interval = self.settings.index_interval_bytes
        active.append_run(run, next_offset, index_interval_bytes=interval)

    def _segment_for(self, size: int, next_offset: int, now_ms: int) -> Segment:
        """Return the newest segment, or a new one if that is full."""
        active, settings = self.segments[-1], self.settings
        if active.size and (
            active.size + size > settings.segment_bytes
            or now_ms - active.created_ms >= settings.segment_ms
            or next_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ):
            return self.roll(now_ms=now_ms)
        return active

    def roll(self, *, now_ms: int) -> Segment:
        """Start a new segment. The old one is sealed once it has been synced."""
        old = self.segments[-1]
        new = Segment.create(self._disk, self.folder, old.end_offset, now_ms=now_ms)
        new.epoch_max = self._epoch_max
        self._unsealed.append(old)
        self.segments.append(new)
        self._bases.append(new.base_offset)
        return new

    def sync_point(self) -> SyncPoint:
        """Return what to sync so that everything appended so far is durable."""
        active = self.segments[-1]
        sealed = list(self._unsealed)
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
                    self._index_files += segment.take_index_files()
            if point.active is self.segments[-1]:
                point.active.synced(min(point.position, point.active.size))
                if point.active.aborted.pending:
                    point.active.aborted.write_before(point.end_offset)
                self._index_files += point.active.take_index_files()
        except OSError:
            pass  # No space for index entries; they stay in memory until there is.

    def journaled(self, point: SyncPoint) -> None:
        """Note that `point.tail()` is durable in the commit journal."""
        active = point.active
        active.durable_to = max(active.durable_to, min(point.position, active.size))

    def is_roll_due(self, now_ms: int) -> bool:
        """Return whether the newest segment is old enough to be closed even without a write."""
        settings, active = self.settings, self.segments[-1]
        age_max = settings.segment_ms
        if settings.is_compacting:
            age_max = min(age_max, settings.compaction_lag_ms_max)
        return active.size > 0 and now_ms - active.created_ms >= age_max

    # Deletion

    def advance_start(self, offset: int) -> None:
        """Delete everything before `offset`, durably. Segments wholly before it can be removed."""
        if offset > self.start_offset:
            self._write_start(offset)

    def mark_cleaned(self, offset: int) -> None:
        """Record durably that compaction has reached `offset`."""
        self.cleaned_offset = offset
        _write_offset(self._disk, f"{self.folder}/{_CLEANED_FILE}", _CLEANED_MAGIC, offset)

    def take_expired(self, *, now_ms: int, until_offset: int) -> list[Segment]:
        """Take out the segments expired by retention; the caller removes their files."""
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
            self._unsealed = [one for one in self._unsealed if one not in taken]
        return taken

    def is_active_expired(self, now_ms: int) -> bool:
        """Return whether even the newest record has expired."""
        settings, active = self.settings, self.segments[-1]
        return (
            settings.is_deleting
            and settings.retention_ms >= 0
            and active.size > 0
            and now_ms - _age_timestamp(active) > settings.retention_ms
        )

    def has_run(self, segments: list[Segment]) -> bool:
        """Return whether these segments are still here, one after the other."""
        if segments[0] not in self.segments:
            return False
        first = self.segments.index(segments[0])
        return self.segments[first : first + len(segments)] == segments

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace segments by rewritten ones."""
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = new
        self._bases = [segment.base_offset for segment in self.segments]
        for segment in new:
            segment.epoch_max = self._epoch_max

    def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on, with the whole batch that contains it. Blocks."""
        if offset < self.segments[0].base_offset:
            self.restart(offset, now_ms=self.segments[-1].created_ms)
            return
        kept = max(1, bisect_right(self._bases, offset - 1))
        self._drop(self.segments[kept:])
        del self.segments[kept:]
        del self._bases[kept:]
        active = self.segments[-1]
        self._unsealed = [one for one in self._unsealed if one in self.segments[:-1]]
        # A sealed segment grows again even if nothing of it is dropped, so its seal must go.
        if offset < active.end_offset or active.is_sealed:
            active.truncate(place_of(active, offset))
        if self.cleaned_offset > self.end_offset:
            self.mark_cleaned(self.end_offset)
        if self.start_offset > self.end_offset:
            self._write_start(self.end_offset)

    def restart(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and start again at `offset`. Blocks."""
        self._write_start(offset)
        self._drop(self.segments)
        self._unsealed.clear()
        self.segments = [Segment.create(self._disk, self.folder, offset, now_ms=now_ms)]
        self.segments[0].epoch_max = self._epoch_max
        self._bases = [offset]
        if self.cleaned_offset:
            self.mark_cleaned(offset)

    def _drop(self, segments: list[Segment]) -> None:
        """Remove the files of segments atomically."""
        there = [one for one in segments if self._disk.exists(one.file.path)]
        if there:
            removed = [segment.base_offset for segment in there]
            begin_swap(self._disk, self.folder, removed=removed, added=[])
            for segment in there:
                segment.retire()
            finish_swap(self._disk, self.folder)

    def _write_start(self, offset: int) -> None:
        _write_offset(self._disk, f"{self.folder}/{_START_FILE}", _START_MAGIC, offset)
        self.start_offset = offset

    def close(self) -> LogState:
        """Write the indexes and close the files; everything must be synced before."""
        for segment in self._unsealed:
            segment.seal()
        self._unsealed.clear()
        for segment in self.segments:
            segment.write_indexes()
            segment.close()
        return LogState(
            self.start_offset,
            [
                SegmentState(
                    one.base_offset,
                    one.size,
                    one.end_offset,
                    one.max_timestamp,
                    one.created_ms,
                    one.aborted_count,
                )
                for one in self.segments
            ],
            self.cleaned_offset,
        )


def _closed_file(disk: Disk, path: str, state: SegmentState) -> File:
    """Return the file of a segment; an empty one may not exist and is created when needed."""
    return disk.open(path) if state.size else disk.create(path, lazily=True)


def _age_timestamp(segment: Segment) -> int:
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def _read_offset(disk: Disk, path: str, magic: bytes) -> int:
    body = read_framed(disk, path, magic=magic, version=_VERSION, body=dict[str, int])
    return body["offset"] if body else 0


def _write_offset(disk: Disk, path: str, magic: bytes, offset: int) -> None:
    write_framed(disk, path, magic=magic, version=_VERSION, body={"offset": offset})
