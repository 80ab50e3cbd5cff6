"""Compaction: the last record of each key stays, and every record keeps its offset.

A pass has three parts. `plan_compaction` selects the closed segments of a log that are due. A
`Compaction` then works through them step by step, if need be outside the event loop: it first maps
the last offset of each key in the dirty part, as far as memory allows, and then rewrites the
segments, small neighbours together. After each step the event loop calls `apply`, which replaces
the original segments by the finished one.

What stays: the last record of each key, records without a key, and, as an empty batch, the last
batch of each known producer, because it has the sequence numbers. A tombstone stays until its
batch's *delete horizon*, which the first pass that sees it writes into the batch as the format
provides: a bit in the attributes, and the time in place of the base timestamp.

Records of aborted transactions are removed, whatever their keys, and count for no key. The marker
of a transaction stays as long as records of the transaction do, and then until a delete horizon; so
does the newest marker of each known producer, because it has the epoch. An abort marker and its
entry in the index of aborted transactions are removed together: a reader relies on both or none.

Offsets have no gaps afterwards either, since gaps are how damage is recognised: a batch without a
producer is extended over the offsets removed after it, and elsewhere an empty batch covers them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.model.batch import (
    HAS_DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    RawRecord,
    build_batch,
    read_header,
    shift_timestamp,
    split_records,
    unpack_payload,
)
from goqueue.model.compression import Buffer, compress
from goqueue.model.errors import CorruptBatch, UnpacksTooLarge
from goqueue.storage.aborted import find_aborted
from goqueue.storage.damage import RELATIVE_OFFSET_MAX, Located, Place, header_at
from goqueue.storage.disk import Disk
from goqueue.storage.index import NOT_KNOWN, AbortedSpans, AbortedTransaction
from goqueue.storage.log import Log
from goqueue.storage.segment import LOG_SUFFIX, Segment, SegmentState, segment_name
from goqueue.storage.swap import CLEANED_SUFFIX, begin_swap, finish_swap

MAP_BYTES_MAX = 64 << 20
STEP_BYTES = 1 << 20
_KEY_BYTES_MAX = 23  # longer keys are represented by a 24-byte digest, which no such key can equal
_MAP_ENTRY_BYTES = 160  # what an entry costs besides its key


class Source(NamedTuple):
    """A closed segment as it was when the pass was planned."""

    segment: Segment
    size: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The segments that a pass rewrites, and its settings."""

    folder: str
    sources: list[Source]
    dirty_from: int
    now_ms: int
    tombstone_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    aborted: list[AbortedTransaction] = field(default_factory=list)


def plan_compaction(
    log: Log, *, now_ms: int, until_offset: int, is_forced: bool = False
) -> CompactionPlan | None:
    """Select what to compact now, if anything; nothing from `until_offset` on is touched."""
    settings = log.settings
    if not settings.is_compacting:
        return None
    ready = _ready_segments(log, now_ms=now_ms, until_offset=until_offset)
    dirty = [segment for segment in ready if segment.end_offset > log.cleaned_offset]
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    ready_bytes = sum(segment.size for segment in ready)
    is_dirty = dirty_bytes >= settings.dirty_ratio_min * ready_bytes
    is_late = now_ms - _first_timestamp(dirty[0]) > settings.compaction_lag_ms_max
    if not (is_dirty or is_late or is_forced):
        return None
    return CompactionPlan(
        folder=log.folder,
        sources=[Source(segment, segment.size, segment.end_offset) for segment in ready],
        dirty_from=max(log.cleaned_offset, ready[0].base_offset),
        now_ms=now_ms,
        tombstone_retention_ms=settings.tombstone_retention_ms,
        segment_bytes=settings.segment_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        aborted=find_aborted(log, ready[0].base_offset, ready[-1].end_offset),
    )


def _first_timestamp(segment: Segment) -> int:
    """Return the timestamp of the first batch, or -1 if it cannot be read."""
    header = header_at(segment, 0)
    if header is None or header.base_offset != segment.base_offset:
        return NO_TIMESTAMP
    return header.max_timestamp if segment.is_possible(header, 0) else NO_TIMESTAMP


def _ready_segments(log: Log, *, now_ms: int, until_offset: int) -> list[Segment]:
    ready = []
    lag_ms_min = log.settings.compaction_lag_ms_min
    for segment in log.segments[:-1]:
        is_dirty = segment.end_offset > log.cleaned_offset
        is_too_new = is_dirty and lag_ms_min > 0 and segment.max_timestamp > now_ms - lag_ms_min
        if not segment.is_sealed or segment.end_offset > until_offset or is_too_new:
            break
        ready.append(segment)
    return ready


class Replacement(NamedTuple):
    """A rewritten segment, durable under its `.cleaned` name, and its original segments."""

    sources: list[Source]
    cleaned: Segment


class Compaction:
    """One pass over one log.

    `last_offsets` has the last offset of the newest batch of each known producer, and
    `marker_offsets` the offset of its newest marker. A damaged segment is left unchanged and listed
    in `reports`.
    """

    def __init__(
        self,
        disk: Disk,
        plan: CompactionPlan,
        *,
        last_offsets: Mapping[int, int],
        marker_offsets: Mapping[int, int] | None = None,
        map_bytes_max: int = MAP_BYTES_MAX,
        step_bytes: int = STEP_BYTES,
    ) -> None:
        self.is_done = False
        self.reports: list[str] = []
        self.bytes_before = 0
        self.bytes_after = 0
        self._disk = disk
        self._plan = plan
        self._last_offsets = last_offsets
        self._marker_offsets = marker_offsets or {}
        self._aborted = AbortedSpans(plan.aborted)
        self._aborted_at = {one.last_offset: one for one in plan.aborted}
        self._with_data: set[int] = set()  # producers with records since their last marker
        self._map_bytes_max = map_bytes_max
        self._step_bytes = step_bytes
        self._last_of_key: dict[bytes, int] = {}
        self._mapped_until = plan.dirty_from
        self._has_skipped = False
        self._replacement: Replacement | None = None
        self._open: Segment | None = None
        self._steps = self._run()

    def step(self) -> None:
        """Do a bounded amount of work. May run in a thread, but never twice at once."""
        self.is_done = next(self._steps, True)

    def apply(self, log: Log) -> bool:
        """Put in place what the last step has finished; False ends the pass.

        Runs in the thread of the log. It blocks for a few syncs if there is something to put in
        place, and does nothing otherwise.
        """
        replacement, self._replacement = self._replacement, None
        if replacement is not None and not self._swap(log, replacement):
            self.abandon()
            return False
        if self.is_done:
            log.mark_cleaned(self._mapped_until)
        return True

    def abandon(self) -> None:
        """Abandon the pass: drop what was written and is not in place."""
        self._steps.close()
        self.is_done = True
        self._replacement = None
        if self._open is not None:
            self._open.remove()
            self._open = None

    def _swap(self, log: Log, replacement: Replacement) -> bool:
        """Replace segments by a rewritten one, unless the log has changed since the plan."""
        old, cleaned = [source.segment for source in replacement.sources], replacement.cleaned
        is_changed = any(one.segment.size != one.size for one in replacement.sources)
        if is_changed or not log.has_run(old):
            return False
        removed = [segment.base_offset for segment in old]
        begin_swap(self._disk, log.folder, removed=removed, added=[cleaned.base_offset])
        for segment in old:
            segment.retire()
        cleaned.close()
        finish_swap(self._disk, log.folder)
        self._open = None
        new = _reopened(self._disk, log.folder, cleaned, created_ms=old[-1].created_ms)
        log.replace_segments(old, [new])
        self.bytes_before += sum(source.size for source in replacement.sources)
        self.bytes_after += new.size
        return True

    # The work, as a generator that pauses after each step

    def _run(self) -> Generator[bool, None, None]:
        yield from self._map_keys()
        groups = deque(self._grouped())
        while groups:
            group = groups.popleft()
            try:
                yield from self._rewrite(group)
            except _DamagedSource as damaged:
                self.reports.append(f"Not compacted: {damaged.text}")
                # Older records of any key may remain in it, so tombstones must stay for now.
                self._has_skipped = True
                parts = (group[: damaged.number], group[damaged.number + 1 :])
                groups.extendleft(part for part in reversed(parts) if part)

    def _map_keys(self) -> Generator[bool, None, None]:
        """Map the last offset of each key in the dirty part, until memory is used up."""
        room, worked = self._map_bytes_max, 0
        for source in self._plan.sources:
            if source.end_offset <= self._plan.dirty_from:
                continue
            view = self._view(source)
            for located in view.scan_readable(Place(0, view.base_offset)):
                header = located.header
                if header.next_offset <= self._plan.dirty_from:
                    continue
                if room <= 0:
                    view.close()
                    return
                data = view.read_batch(located)
                is_dropped = header.is_control or self._aborted.cover(header)
                if data is not None and not is_dropped:
                    room -= self._map_batch(header, data)
                self._mapped_until = header.next_offset
                worked += header.size
                if worked >= self._step_bytes:
                    worked = 0
                    yield False
            self._mapped_until = source.end_offset
            view.close()

    def _map_batch(self, header: BatchHeader, data: bytes) -> int:
        """Add the keys of a batch to the map; return how much memory they took."""
        taken, last_of_key = 0, self._last_of_key
        try:
            for record in split_records(header, unpack_payload(data, header)):
                if record.key is not None:
                    key = _known_as(record.key)
                    if key not in last_of_key:
                        taken += _MAP_ENTRY_BYTES + len(key)
                    last_of_key[key] = header.base_offset + record.offset_delta
        except UnpacksTooLarge:
            self._has_skipped = True  # It stays unchanged, with older records of any key.
        except CorruptBatch:
            pass  # Its segment is left unchanged and reported when its turn comes.
        return taken

    def _grouped(self) -> Iterator[list[Source]]:
        """Yield the segments with mapped keys, grouped so that neighbours fit into one."""
        group: list[Source] = []
        size = 0
        for source in self._plan.sources:
            if source.segment.base_offset >= self._mapped_until:
                break
            is_full = group and (
                size + source.size > self._plan.segment_bytes
                or source.end_offset - group[0].segment.base_offset > RELATIVE_OFFSET_MAX
                or source.segment.base_offset != group[-1].end_offset
            )
            if is_full:
                yield group
                group, size = [], 0
            group.append(source)
            size += source.size
        if group:
            yield group

    def _rewrite(self, group: list[Source]) -> Generator[bool, None, None]:
        """Rewrite some segments as one, and hand it over if anything changed."""
        plan = self._plan
        cleaned = self._open = Segment.create(
            self._disk,
            plan.folder,
            group[0].segment.base_offset,
            now_ms=plan.now_ms,
            name_suffix=CLEANED_SUFFIX,
        )
        writer = _Writer(cleaned, plan.index_interval_bytes)
        is_changed, worked = len(group) > 1, 0
        for number, source in enumerate(group):
            view = self._view(source)
            try:
                for located in view.scan(Place(0, view.base_offset)):
                    kept, is_touched = self._cleaned(view, located)
                    is_changed = is_changed or is_touched
                    writer.add(located.header, kept)
                    aborted = self._aborted_at.get(located.header.base_offset)
                    if aborted is not None and kept is not None:
                        cleaned.indexes.add_aborted(aborted)
                    worked += located.header.size
                    if worked >= self._step_bytes:
                        worked = 0
                        yield False
            except CorruptBatch as error:
                self._drop_open()
                raise _DamagedSource(number, str(error)) from error
            finally:
                view.close()
        writer.end(group[-1].end_offset)
        if not is_changed:
            self._drop_open()
            return
        cleaned.file.sync()
        cleaned.seal()
        for file in cleaned.indexes.files:
            file.sync()
        self._replacement = Replacement(group, cleaned)
        yield False

    def _cleaned(self, view: Segment, located: Located) -> tuple[Buffer | None, bool]:
        """Return what stays of a batch (None: nothing), and whether its records changed."""
        data = view.read_batch(located)
        if data is None:
            raise view.corrupt(Place(located.position, located.header.base_offset))
        header = located.header
        if header.is_transactional and not header.is_control and header.record_count:
            self._with_data.add(header.producer_id)
        if header.base_offset >= self._mapped_until:
            return data, False
        if header.is_control:
            return self._cleaned_marker(header, data)
        if header.record_count == 0:
            return (data if self._is_last_of_producer(header) else None), False
        if self._aborted.cover(header):
            if not self._is_last_of_producer(header):
                return None, True
            return _rebuilt(header, [], horizon_ms=None), True
        try:
            payload = unpack_payload(data, header)
            records = split_records(header, payload)
            kept = [record for record in records if self._is_kept(header, record)]
        except UnpacksTooLarge:
            # Its content is unknown: it stays, and so do tombstones after it.
            self._has_skipped = True
            return data, False
        except CorruptBatch as error:
            raise view.corrupt(Place(located.position, header.base_offset)) from error
        is_new_tombstone = (
            not header.has_delete_horizon
            and not self._has_skipped
            and any(record.is_tombstone for record in kept)
        )
        if len(kept) == header.record_count and not is_new_tombstone:
            return data, False
        if not kept and not self._is_last_of_producer(header):
            return None, True
        horizon_ms = self._plan.now_ms + self._plan.tombstone_retention_ms
        return _rebuilt(header, kept, horizon_ms=horizon_ms if is_new_tombstone else None), True

    def _cleaned_marker(self, header: BatchHeader, data: bytes) -> tuple[Buffer | None, bool]:
        """Return what stays of a marker: all of it, with a delete horizon, or nothing."""
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        is_newest = self._marker_offsets.get(header.producer_id) == header.base_offset
        # Records may be in a segment that could not be read, so nothing is certain after one.
        if had_data or is_newest or self._has_skipped:
            return data, False
        if header.has_delete_horizon:
            is_over = header.base_timestamp <= self._plan.now_ms
            return (None, True) if is_over else (data, False)
        horizon_ms = self._plan.now_ms + self._plan.tombstone_retention_ms
        records = list(split_records(header, unpack_payload(data, header)))
        return _rebuilt(header, records, horizon_ms=horizon_ms), True

    def _is_kept(self, header: BatchHeader, record: RawRecord) -> bool:
        if record.key is None:
            return True
        offset = header.base_offset + record.offset_delta
        if self._last_of_key.get(_known_as(record.key), -1) > offset:
            return False
        is_over = header.has_delete_horizon and header.base_timestamp <= self._plan.now_ms
        return not (record.is_tombstone and is_over)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER:
            return False
        return self._last_offsets.get(header.producer_id) == header.last_offset

    def _view(self, source: Source) -> Segment:
        """Return a view of the segment with its own file: the log's belongs to the event loop."""
        segment = source.segment
        state = SegmentState(
            segment.base_offset,
            source.size,
            source.end_offset,
            NOT_KNOWN,
            segment.created_ms,
            segment.indexes.aborted_count,
        )
        file = self._disk.open(segment.file.path)
        return Segment(self._disk, self._plan.folder, file, state)

    def _drop_open(self) -> None:
        if self._open is not None:
            self._open.remove()
            self._open = None


class _DamagedSource(Exception):
    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number
        self.text = text


class _Writer:
    """Writes batches to a segment without gaps between their offsets."""

    def __init__(self, segment: Segment, index_interval_bytes: int) -> None:
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._held: Buffer | None = None  # the last batch, which may have to be extended
        self._next_offset = segment.base_offset
        self._epoch = 0

    def add(self, header: BatchHeader, batch: Buffer | None) -> None:
        """Write what stays of the batch that had this header."""
        self._epoch = header.leader_epoch
        if batch is not None:
            self._fill(header.base_offset)
            self._flush()
            self._held, self._next_offset = batch, header.next_offset

    def end(self, offset: int) -> None:
        """Fill up to the end of the segment."""
        self._fill(offset)
        self._flush()

    def _fill(self, until: int) -> None:
        if self._next_offset == until:
            return
        if self._held is not None and _can_stretch(read_header(self._held)):
            self._held = _stretched(self._held, until)
        else:
            self._flush()
            self._held = build_batch(
                b"",
                record_count=0,
                base_offset=self._next_offset,
                last_offset_delta=until - 1 - self._next_offset,
                leader_epoch=self._epoch,
            )
        self._next_offset = until

    def _flush(self) -> None:
        if self._held is not None:
            self._segment.append(
                memoryview(self._held),
                read_header(self._held),
                index_interval_bytes=self._index_interval_bytes,
            )
            self._held = None


def _can_stretch(header: BatchHeader) -> bool:
    # A producer's last sequence number follows from the number of offsets in its batch.
    return header.producer_id == NO_PRODUCER and not header.is_control


def _stretched(batch: Buffer, until: int) -> bytearray:
    header = read_header(batch)
    return _with_records(
        header,
        memoryview(batch)[HEADER_BYTES:],
        header._replace(last_offset_delta=until - 1 - header.base_offset),
    )


def _rebuilt(header: BatchHeader, records: list[RawRecord], *, horizon_ms: int | None) -> bytearray:
    """Build a batch with fewer records, or with a delete horizon for its tombstones."""
    attributes, base, newest = header.attributes, header.base_timestamp, header.max_timestamp
    if records and not attributes & LOG_APPEND_TIME:
        newest = max(base + record.timestamp_delta for record in records)
    if horizon_ms is None:
        payload = b"".join(record.data for record in records)
    else:
        payload = b"".join(shift_timestamp(record, base - horizon_ms) for record in records)
        attributes, base = attributes | HAS_DELETE_HORIZON, horizon_ms
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=newest,
        record_count=len(records),
    )
    return _with_records(header, compress(header.codec, payload) if records else b"", changed)


def _with_records(header: BatchHeader, payload: Buffer, changed: BatchHeader) -> bytearray:
    """Build a batch in the place of one that had `header`."""
    return build_batch(
        payload,
        record_count=changed.record_count,
        base_offset=header.base_offset,
        last_offset_delta=changed.last_offset_delta,
        leader_epoch=header.leader_epoch,
        attributes=changed.attributes,
        base_timestamp=changed.base_timestamp,
        max_timestamp=changed.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _known_as(key: bytes) -> bytes:
    if len(key) <= _KEY_BYTES_MAX:
        return key
    return hashlib.blake2b(key, digest_size=_KEY_BYTES_MAX + 1).digest()


def _reopened(disk: Disk, folder: str, cleaned: Segment, *, created_ms: int) -> Segment:
    file = disk.open(f"{folder}/{segment_name(cleaned.base_offset)}{LOG_SUFFIX}")
    state = cleaned.state()
    state.created_ms = created_ms
    return Segment(disk, folder, file, state, is_sealed=True)
