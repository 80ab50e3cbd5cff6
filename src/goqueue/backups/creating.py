"""Creating a backup: copy what the cut includes and the folder does not have yet.

Logs only grow at their end, so what earlier backups have copied is used again: whole objects, as
long as compaction has not rewritten them and the live log still has their last batch. A backup that
was interrupted leaves objects without a manifest, which the next one finds and uses as well.

A log may change below the cut while it is copied: compaction may remove a record because of one
after the cut, and the delivery state may be replaced by a snapshot after the cut. Both are noticed,
and the backup begins again with a new cut; what was copied stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple, Protocol

from goqueue.backups.manifest import (
    Manifest,
    MetadataEntry,
    ObjectEntry,
    PartitionEntry,
    TopicEntry,
    manifest_name,
    metadata_name,
    object_name,
    partition_prefix,
)
from goqueue.backups.store import Part, Store
from goqueue.model.batch import HEADER_BYTES, BatchHeader, read_header
from goqueue.model.errors import (
    CorruptBatch,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopicId,
)
from goqueue.model.names import DELIVERY_TOPIC, INTERNAL_TOPICS
from goqueue.model.support import LEVEL_MIN

OBJECT_BYTES_MAX = 64 << 20
OBJECT_OFFSETS_MAX = 1 << 30  # positions in a segment are relative, in 31 bits
CUTS_MAX = 5


class Piece(NamedTuple):
    """Whole batches, and the state of the log when they were read."""

    start: int
    cleaned: int
    data: bytes


class Span(NamedTuple):
    start: int
    end: int


class TopicCut(NamedTuple):
    name: str
    id: str
    spans: Sequence[Span]


class Cut(NamedTuple):
    cluster_id: str
    cut_ms: int
    metadata: bytes
    topics: Sequence[TopicCut]
    feature_level: int = LEVEL_MIN


class Source(Protocol):
    """The running cluster."""

    def cut(self, topics: Sequence[str] | None) -> Cut: ...

    def read(self, topic_id: str, number: int, *, offset: int, until: int) -> Piece: ...


class Progress(NamedTuple):
    """What was copied so far, and what was used again."""

    copied_bytes: int = 0
    reused_bytes: int = 0


class Overtaken(Exception):
    """A log has changed below the cut."""


def create(
    folder: Store,
    source: Source,
    *,
    version: str,
    topics: Sequence[str] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Manifest:
    """Create a backup of everything, or without the messages of other topics than these."""
    with folder.open_for_writing():
        reason: Exception | None = None
        for _ in range(CUTS_MAX):
            cut = source.cut(topics)
            try:
                return _Creation(folder, source, cut, version, progress).run(topics)
            except Overtaken as overtaken:
                reason = overtaken
        raise RequestTimedOut(
            f"The logs change faster than they can be copied: {reason} What was copied is kept; "
            "retry."
        )


class _Creation:
    """One attempt, for one cut."""

    def __init__(
        self,
        folder: Store,
        source: Source,
        cut: Cut,
        version: str,
        progress: Callable[[Progress], None],
    ) -> None:
        self._folder = folder
        self._source = source
        self._cut = cut
        self._version = version
        self._report = progress
        self._progress = Progress()
        self._earlier = folder.usable()

    def run(self, chosen: Sequence[str] | None) -> Manifest:
        # State first: it is small, and changes below the cut more often than messages do.
        ordered = sorted(self._cut.topics, key=lambda one: one.name not in INTERNAL_TOPICS)
        entries = [self._topic(one) for one in ordered]
        metadata = MetadataEntry(
            size=len(self._cut.metadata), sha256=sha256(self._cut.metadata).hexdigest()
        )
        self._folder.write(metadata_name(metadata), [self._cut.metadata])
        manifest = Manifest(
            id=self._new_id(),
            cluster_id=self._cut.cluster_id,
            broker_version=self._version,
            feature_level=self._cut.feature_level,
            cut_ms=self._cut.cut_ms,
            finished_ms=time.time_ns() // 1_000_000,
            chosen_topics=None if chosen is None else tuple(chosen),
            metadata=metadata,
            topics=tuple(sorted(entries, key=lambda one: one.name)),
        )
        self._folder.add(manifest)
        return manifest

    def _new_id(self) -> str:
        """Return an id that sorts after those of earlier backups."""
        moment = datetime.fromtimestamp(self._cut.cut_ms / 1000, UTC)
        stem = moment.strftime("%Y%m%dT%H%M%S") + f".{self._cut.cut_ms % 1000:03d}Z"
        number, backup_id = 1, stem
        while self._folder.size(manifest_name(backup_id)) is not None:
            number += 1
            backup_id = f"{stem}-{number}"
        return backup_id

    # Partitions

    def _topic(self, topic: TopicCut) -> TopicEntry:
        partitions = [
            _PartitionCopy(self, topic, number).run() for number in range(len(topic.spans))
        ]
        return TopicEntry(name=topic.name, id=topic.id, partitions=tuple(partitions))

    def read(self, topic_id: str, number: int, *, offset: int, until: int) -> Piece:
        return self._source.read(topic_id, number, offset=offset, until=until)

    def earlier(self, topic_id: str, number: int) -> list[PartitionEntry]:
        """Return this partition in earlier backups, the newest first."""
        return [
            partition
            for manifest in self._earlier
            for topic in manifest.topics
            if topic.id == topic_id
            for partition in topic.partitions
            if partition.number == number
        ]

    def left_over(self, topic_id: str, number: int) -> list[str]:
        """Return the names of all objects of a partition."""
        return self._folder.names(partition_prefix(topic_id, number))

    @property
    def folder(self) -> Store:
        return self._folder

    def note(self, *, copied: int = 0, reused: int = 0) -> None:
        before = self._progress
        self._progress = Progress(before.copied_bytes + copied, before.reused_bytes + reused)
        self._report(self._progress)


class _PartitionCopy:
    """Copies one partition up to its cut."""

    def __init__(self, creation: _Creation, topic: TopicCut, number: int) -> None:
        self._creation = creation
        self._topic = topic
        self._number = number
        self._span = topic.spans[number]
        self._name = f"{topic.name}/{number}"
        self._objects: list[ObjectEntry] = []

    def run(self) -> PartitionEntry:
        span = self._span
        if span.end <= span.start:
            return PartitionEntry(number=self._number, start=span.end, end=span.end, cleaned=0)
        known = self._read(span.start, until=span.start)
        # The log may have lost its beginning since the cut, by retention.
        start = min(max(span.start, known.start), span.end)
        position = start
        for one in self._usable(start, known.cleaned):
            if one.base > position:
                self._copy(position, one.base)
            self._objects.append(one)
            self._creation.note(reused=one.size)
            position = one.end
        self._copy(position, span.end)
        return PartitionEntry(
            number=self._number,
            start=start,
            end=span.end,
            cleaned=known.cleaned,
            objects=tuple(self._objects),
        )

    def _read(self, offset: int, *, until: int | None = None) -> Piece:
        """Read batches, and check that the log below the cut is still that of the cut."""
        until = self._span.end if until is None else until
        try:
            piece = self._creation.read(self._topic.id, self._number, offset=offset, until=until)
        except OffsetOutOfRange as error:
            raise Overtaken(f"{self._name} has lost records: {error}") from error
        except UnknownTopicId as error:
            raise Overtaken(f"{self._name} was deleted.") from error
        if piece.cleaned > self._span.end:
            raise Overtaken(f"Compaction of {self._name} has passed the cut.")
        if self._topic.name == DELIVERY_TOPIC and piece.start > self._span.start:
            raise Overtaken(f"{self._name} was replaced by a snapshot after the cut.")
        return piece

    # What the folder has

    def _usable(self, start: int, cleaned: int) -> list[ObjectEntry]:
        """Return successive objects that are still as in the log, to its cut at most."""
        for earlier in self._creation.earlier(self._topic.id, self._number):
            objects = [one for one in earlier.objects if start < one.end <= self._span.end]
            if earlier.cleaned != cleaned:
                objects = [one for one in objects if one.base >= cleaned]
            if objects and self._is_current(objects):
                return self._extended(objects)
        return self._extended([], base=start)

    def _is_current(self, objects: Sequence[ObjectEntry]) -> bool:
        """Whether the objects are in the folder, and the log has the last batch of the last."""
        folder, topic = self._creation.folder, self._topic.id
        if any(folder.size(object_name(topic, self._number, one)) != one.size for one in objects):
            return False
        last = objects[-1]
        try:
            piece = self._read(last.last_end - 1, until=last.end)
        except CorruptBatch:
            return False
        headers = list(_headers(piece.data))
        return bool(headers) and (headers[-1].next_offset, headers[-1].crc) == (
            last.last_end,
            last.last_crc,
        )

    def _extended(self, objects: list[ObjectEntry], *, base: int = 0) -> list[ObjectEntry]:
        """Append objects that an interrupted backup has left, if they follow and are current."""
        names = self._creation.left_over(self._topic.id, self._number)
        while True:
            position = objects[-1].end if objects else base
            following = [
                entry
                for name in names
                if name.rpartition("/")[2].startswith(f"{position:020d}-")
                and (entry := self._inspect(name)) is not None
                and position < entry.end <= self._span.end
            ]
            following = [one for one in following if self._is_current([one])]
            if not following:
                return objects
            objects = [*objects, max(following, key=lambda one: one.end)]

    def _inspect(self, name: str) -> ObjectEntry | None:
        """Return the entry of an object, from its content; None if that is not what it says."""
        base, end, _ = name.rpartition("/")[2].split("-")
        summary = _Summary(int(base))
        for data in _whole_batches(self._creation.folder.read(name)):
            summary.add(data)
        if summary.headers == 0:
            return None
        entry = summary.entry(end=int(end))
        return entry if object_name(self._topic.id, self._number, entry) == name else None

    # Copying

    def _copy(self, position: int, until: int) -> None:
        """Copy the batches from `position` to `until` into new objects."""
        while position < until:
            position = self._copy_object(position, until)

    def _copy_object(self, position: int, until: int) -> int:
        """Write one object; return where to go on."""
        summary = _Summary(position)
        with self._creation.folder.writing() as part:
            while summary.size < OBJECT_BYTES_MAX and position < until:
                data = self._next(position, until)
                if not data:
                    position = until  # Compaction has removed the rest.
                    break
                position = self._append(part, summary, data)
                if position - summary.base >= OBJECT_OFFSETS_MAX:
                    break
            if not summary.headers:
                return position
            entry = summary.entry(end=position)
            part.finish(object_name(self._topic.id, self._number, entry))
        self._objects.append(entry)
        return position

    def _append(self, part: Part, summary: _Summary, data: bytes) -> int:
        part.append(data)
        summary.add(data)
        self._creation.note(copied=len(data))
        return summary.last_end

    def _next(self, position: int, until: int) -> bytes:
        """Return the next batches; those of a damaged place cannot be left out."""
        try:
            return self._read(position, until=until).data
        except CorruptBatch as error:
            raise CorruptBatch(
                f"{self._name} cannot be copied, because it is damaged: {error}"
            ) from error


class _Summary:
    """What an entry says about the batches of an object."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.size = 0
        self.headers = 0
        self.last_end = base
        self._digest = sha256()
        self._last_crc = 0
        self._epoch = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._digest.update(data)
        for header in _headers(data):
            if not self.headers:
                # Records may be deleted up to the middle of a batch, of which all is stored.
                self.base = min(self.base, header.base_offset)
            self.headers += 1
            self.last_end, self._last_crc = header.next_offset, header.crc
            self._epoch = max(self._epoch, header.leader_epoch)

    def entry(self, *, end: int) -> ObjectEntry:
        return ObjectEntry(
            base=self.base,
            end=end,
            last_end=self.last_end,
            size=self.size,
            sha256=self._digest.hexdigest(),
            last_crc=self._last_crc,
            epoch=self._epoch,
        )


def _headers(data: bytes) -> Iterable[BatchHeader]:
    at = 0
    while at < len(data):
        header = read_header(data, at)
        yield header
        at += header.size


def _whole_batches(parts: Iterable[bytes]) -> Iterable[bytes]:
    """Regroup the bytes of a file into runs of whole batches; an incomplete end is dropped."""
    waiting = b""
    for part in parts:
        waiting += part
        at = 0
        while at + HEADER_BYTES <= len(waiting):
            size = read_header(waiting, at).size
            if size < HEADER_BYTES:
                return  # It is damaged.
            if at + size > len(waiting):
                break
            at += size
        if at:
            yield waiting[:at]
            waiting = waiting[at:]
