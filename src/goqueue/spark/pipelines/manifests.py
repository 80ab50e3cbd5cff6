"""The manifests of an archive: one file per run, committed by its name alone.

An archive is a folder with `manifests/` and `data/`. A run writes its data first and then one
manifest with the next number; a crash before that leaves data that no manifest names, which is not
part of the archive and which the next run removes. A manifest with a snapshot, as written by
compaction, replaces everything before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.digests import Digest, total
from goqueue.spark.pipelines.folders import is_fresh, write_new

FORMAT = "goqueue-archive"
VERSION = 1
DATA = "data"
MANIFESTS = "manifests"
_DIGITS = 12  # of a manifest's number, so that names sort like numbers

Kind = Literal["append", "snapshot"]


class DamagedArchive(GoQueueError):
    """An archive does not match its manifests."""

    code = "damaged_archive"


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file; `path` is relative to the archive."""

    path: str
    bytes: int
    crc32c: int
    digest: Digest
    first_offset: int
    last_offset: int
    timestamp_ms_min: int
    timestamp_ms_max: int


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What one task archived: offsets of a partition from `start` to `end`, exclusive."""

    topic: str
    partition: int
    start: int
    end: int
    digest: Digest
    files: tuple[ArchivedFile, ...]
    # Ages of records when archived: the number below 1 ms, 2 ms, 4 ms and so on.
    latencies: tuple[int, ...] = ()


class TopicPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a topic, and the next offset to archive of each partition."""

    topic_id: str
    offsets: dict[int, int]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what it added, and the positions of the archive after it."""

    format: str = FORMAT
    version: int = VERSION
    number: int
    run_id: str
    kind: Kind = "append"
    started_at_ms: int
    committed_at_ms: int
    positions: dict[str, TopicPosition]
    pieces: tuple[Piece, ...]
    losses: tuple[str, ...] = ()
    # Of a snapshot: records that are the newest of their key in their partition but are not in the
    # snapshot. The next run needs them; nothing else reads them.
    superseded: tuple[Piece, ...] = ()

    @property
    def digest(self) -> Digest:
        return total(piece.digest for piece in self.pieces)

    @property
    def files(self) -> list[ArchivedFile]:
        return [file for piece in self.pieces for file in piece.files]


@dataclass(frozen=True, slots=True)
class Archive:
    """A folder and its manifests, oldest first."""

    folder: Path
    manifests: tuple[Manifest, ...]

    @property
    def live(self) -> tuple[Manifest, ...]:
        """Return the manifests that make up the current contents of the archive."""
        first = max(
            (n for n, one in enumerate(self.manifests) if one.kind == "snapshot"), default=0
        )
        return self.manifests[first:]

    @property
    def pieces(self) -> list[Piece]:
        return [piece for manifest in self.live for piece in manifest.pieces]

    @property
    def superseded(self) -> list[Piece]:
        return [piece for manifest in self.live for piece in manifest.superseded]

    @property
    def digest(self) -> Digest:
        return total(manifest.digest for manifest in self.live)

    @property
    def positions(self) -> Mapping[str, TopicPosition]:
        """Return where each topic continues, by its last manifest."""
        return self.manifests[-1].positions if self.manifests else {}

    @property
    def number_next(self) -> int:
        return self.manifests[-1].number + 1 if self.manifests else 1

    def remove_strays(self) -> int:
        """Remove files that are not in the archive: of crashed runs, and of older snapshots."""
        named = {self.folder / file.path for one in self.live for file in one.files}
        named |= {self.folder / file.path for piece in self.superseded for file in piece.files}
        files = [file for file in (self.folder / DATA).rglob("*") if file.is_file()]
        strays = [file for file in files if file not in named]
        strays += [file for file in (self.folder / MANIFESTS).glob("*") if is_fresh(file)]
        for file in strays:
            file.unlink()
        return len(strays)


def load_archive(folder: Path) -> Archive:
    """Read the manifests. A folder without any is an empty archive."""
    files = sorted((folder / MANIFESTS).glob("*.json"))
    manifests = tuple(_read(file) for file in files)
    numbers = [one.number for one in manifests]
    if numbers != list(range(1, len(numbers) + 1)):
        raise DamagedArchive(
            f"The manifests in {folder / MANIFESTS} should be numbered 1 to {len(numbers)} and are "
            f"{', '.join(map(str, numbers))}; put back the ones that are missing."
        )
    return Archive(folder, manifests)


def commit(folder: Path, manifest: Manifest) -> Path:
    """Commit a run to the archive."""
    file = folder / MANIFESTS / f"{manifest.number:0{_DIGITS}d}.json"
    write_new(file, msgspec.json.format(msgspec.json.encode(manifest)))
    return file


def advanced(
    before: Mapping[str, TopicPosition], ends: Iterable[tuple[TopicPartition, str, int]]
) -> dict[str, TopicPosition]:
    """Advance positions to `ends`: partition, id of its topic, next offset."""
    after = {topic: (one.topic_id, dict(one.offsets)) for topic, one in before.items()}
    for partition, topic_id, end in ends:
        known = after.get(partition.topic)
        if known is None or known[0] != topic_id:
            known = after[partition.topic] = topic_id, {}
        known[1][partition.partition] = end
    return {
        topic: TopicPosition(topic_id=topic_id, offsets=offsets)
        for topic, (topic_id, offsets) in sorted(after.items())
    }


def chosen_files(
    pieces: Iterable[Piece],
    *,
    topics: Sequence[str] | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
) -> list[ArchivedFile]:
    """Return the files that can hold records of these topics and times."""
    return [
        file
        for piece in pieces
        if topics is None or piece.topic in topics
        for file in piece.files
        if (from_ms is None or file.timestamp_ms_max >= from_ms)
        and (until_ms is None or file.timestamp_ms_min < until_ms)
    ]


def _read(file: Path) -> Manifest:
    try:
        head = msgspec.json.decode(file.read_bytes(), type=_Head)
        if (head.format, head.version) != (FORMAT, VERSION):
            raise DamagedArchive(
                f"{file} is {head.format} version {head.version}; this program reads {FORMAT} "
                f"version {VERSION}."
            )
        return msgspec.json.decode(file.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise DamagedArchive(f"{file} is no manifest: {error}") from error


class _Head(msgspec.Struct):
    format: str
    version: int
