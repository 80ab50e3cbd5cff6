"""The manifests of a typed table: one file per run, committed by its name alone.

As with an archive, data that no manifest names is not part of the table, and the next run removes
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from goqueue.spark.pipelines.digests import Digest, total
from goqueue.spark.pipelines.folders import is_fresh, write_new
from goqueue.spark.pipelines.manifests import DATA, MANIFESTS, DamagedArchive, TopicPosition

FORMAT = "goqueue-typed"
VERSION = 1
UNDECODABLE = "undecodable"  # folder of records that did not conform to their schema
_DIGITS = 12  # of a manifest's number, so that names sort like numbers


class TypedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file; `path` is relative to the table."""

    path: str
    bytes: int
    crc32c: int
    rows: int


class TypedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """What one task typed: records of one partition, some of them undecodable."""

    topic: str
    partition: int
    start: int  # the first offset, and the one after the last
    end: int
    digest: Digest  # of all records as they were read
    files: tuple[TypedFile, ...]
    undecodable: tuple[TypedFile, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def undecodable_rows(self) -> int:
        return sum(file.rows for file in self.undecodable)


class SchemaNote(msgspec.Struct, frozen=True, kw_only=True):
    """The schema that a column was read with."""

    subject: str
    version: int
    id: int
    kind: str


class TypedManifest(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what it added, and the positions of the table after it."""

    format: str = FORMAT
    version: int = VERSION
    number: int
    run_id: str
    started_at_ms: int
    committed_at_ms: int
    topic: str
    schemas: dict[str, SchemaNote]
    table_schema: str  # Spark's JSON of all columns of the table
    positions: dict[str, TopicPosition] = {}
    archive_id: str = ""  # of the first run of the archive that the table is built from
    archive_number: int = 0  # the last manifest of it that is in the table
    pieces: tuple[TypedPiece, ...] = ()
    losses: tuple[str, ...] = ()

    @property
    def digest(self) -> Digest:
        return total(piece.digest for piece in self.pieces)

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def undecodable_rows(self) -> int:
        return sum(piece.undecodable_rows for piece in self.pieces)

    @property
    def files(self) -> list[TypedFile]:
        return [file for piece in self.pieces for file in (*piece.files, *piece.undecodable)]


@dataclass(frozen=True, slots=True)
class TypedTable:
    """A folder and its manifests, oldest first."""

    folder: Path
    manifests: tuple[TypedManifest, ...]

    @property
    def last(self) -> TypedManifest | None:
        return self.manifests[-1] if self.manifests else None

    @property
    def positions(self) -> Mapping[str, TopicPosition]:
        return self.last.positions if self.last else {}

    @property
    def number_next(self) -> int:
        return self.last.number + 1 if self.last else 1

    @property
    def files(self) -> list[TypedFile]:
        return [file for one in self.manifests for file in one.files]

    def paths(self, *, undecodable: bool = False) -> list[str]:
        """Return the files of the table, or of undecodable records."""
        return [
            str(self.folder / file.path)
            for one in self.manifests
            for piece in one.pieces
            for file in (piece.undecodable if undecodable else piece.files)
        ]

    def remove_strays(self) -> int:
        """Remove what incomplete runs left."""
        named = {self.folder / file.path for file in self.files}
        strays = [
            file
            for subfolder in (DATA, UNDECODABLE)
            for file in (self.folder / subfolder).rglob("*")
            if file.is_file() and file not in named
        ]
        strays += [file for file in (self.folder / MANIFESTS).glob("*") if is_fresh(file)]
        for file in strays:
            file.unlink()
        return len(strays)


def load_table(folder: Path) -> TypedTable:
    """Read the manifests. A folder without any is an empty table."""
    manifests = tuple(_read(file) for file in sorted((folder / MANIFESTS).glob("*.json")))
    numbers = [one.number for one in manifests]
    if numbers != list(range(1, len(numbers) + 1)):
        raise DamagedArchive(
            f"The manifests in {folder / MANIFESTS} should be numbered 1 to {len(numbers)} and are "
            f"{', '.join(map(str, numbers))}; put back the ones that are missing."
        )
    return TypedTable(folder, manifests)


def commit_table(folder: Path, manifest: TypedManifest) -> Path:
    """Commit a run to the table."""
    file = folder / MANIFESTS / f"{manifest.number:0{_DIGITS}d}.json"
    write_new(file, msgspec.json.format(msgspec.json.encode(manifest)))
    return file


def _read(file: Path) -> TypedManifest:
    try:
        head = msgspec.json.decode(file.read_bytes(), type=_Head)
        if (head.format, head.version) != (FORMAT, VERSION):
            raise DamagedArchive(
                f"{file} is {head.format} version {head.version}; a typed table has {FORMAT} "
                f"version {VERSION}. Name another folder."
            )
        return msgspec.json.decode(file.read_bytes(), type=TypedManifest)
    except msgspec.MsgspecError as error:
        raise DamagedArchive(f"{file} is no manifest: {error}") from error


class _Head(msgspec.Struct):
    format: str
    version: int
