"""Writes the records of one partition to files of a typed table, on a worker.

Records that conform to their schema go into one file; others go into another, as they were read and
with the reason. Nothing is omitted: the rows of both together are the records that were read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.digests import Digest, digest_of
from goqueue.spark.pipelines.folders import sync_file, sync_folder
from goqueue.spark.pipelines.manifests import DATA, DamagedArchive
from goqueue.spark.pipelines.parquet_files import ROW_GROUP_BYTES, file_checksum
from goqueue.spark.pipelines.typing_manifests import UNDECODABLE, TypedFile, TypedPiece
from goqueue.spark.typed.table import TypedColumns, column_decoders

REASON = "reason"


@dataclass(slots=True)
class _File:
    """A file that is created with its first row, and the rows for its next row group."""

    table: Path
    folder: Path
    partition: int
    writer: pq.ParquetWriter | None = None
    path: Path | None = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        if self.writer is None:
            # Unique to each attempt of a task.
            self.path = self.folder / f"{self.partition:05d}-{uuid.uuid4().hex}.parquet"
            self.folder.mkdir(parents=True, exist_ok=True)
            self.writer = pq.ParquetWriter(
                self.path, batch.schema, compression="zstd", compression_level=1
            )
        self.rows += len(batch)
        self.waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> tuple[TypedFile, ...]:
        """Return the file, with its bytes and name synced to disk, if it was created."""
        if self.writer is None or self.path is None:
            return ()
        self._flush()
        self.writer.close()
        sync_file(self.path)
        for one in (self.path.parent, *self.path.parent.parents):
            sync_folder(one)
            if one == self.table:
                break
        stored = pq.read_metadata(self.path).num_rows
        if stored != self.rows:
            raise DamagedArchive(f"{self.path} has {stored} rows, and {self.rows} were written.")
        return (
            TypedFile(
                path=str(self.path.relative_to(self.table)),
                bytes=self.path.stat().st_size,
                crc32c=file_checksum(self.path),
                rows=self.rows,
            ),
        )

    def discard(self) -> None:
        """Remove what was written, when a task fails."""
        if self.writer is not None and self.path is not None:
            self.writer.close()
            self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self.waiting and self.writer is not None:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting, self.waiting_bytes = [], 0


def type_records(
    typed: TypedColumns,
    table: Path,
    partition: TopicPartition,
    batches: Iterable[pa.RecordBatch],
    *,
    start: int,
    end: int,
) -> TypedPiece:
    """Type records, which have all columns of the data source, and write them."""
    decoders = column_decoders(typed, typed.schemas)
    subfolder = f"topic={quote(partition.topic, safe='')}/partition={partition.partition}"
    good = _File(table, table / DATA / subfolder, partition.partition)
    bad = _File(table, table / UNDECODABLE / subfolder, partition.partition)
    digest = Digest()
    try:
        for batch in batches:
            digest += digest_of(batch)
            columns, reasons = {}, dict[int, str]()
            for column, decoder in decoders.items():
                columns[column], found = decoder.decode(batch[column])
                for row, reason in found.items():
                    reasons.setdefault(row, f"{column}: {reason}")
            obeys = np.ones(len(batch), np.bool_)
            obeys[list(reasons)] = False
            good.add(_chosen(_with(batch, columns), obeys))
            bad.add(_with_reasons(batch, reasons))
        files, undecodable = good.close(), bad.close()
    except BaseException:
        good.discard()
        bad.discard()
        raise
    if good.rows + bad.rows != digest.records:
        raise DamagedArchive(
            f"{partition}: {digest.records} records were read and {good.rows + bad.rows} written."
        )
    return TypedPiece(
        topic=partition.topic,
        partition=partition.partition,
        start=start,
        end=end,
        digest=digest,
        files=files,
        undecodable=undecodable,
    )


def _with(batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    names = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [columns.get(name, batch[name]) for name in names], names=names
    )


def _chosen(
    batch: pa.RecordBatch, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.RecordBatch:
    return batch if rows.all() else batch.filter(pa.array(rows))


def _with_reasons(batch: pa.RecordBatch, reasons: dict[int, str]) -> pa.RecordBatch:
    rows = sorted(reasons)
    chosen = batch.take(pa.array(rows, pa.int64()))
    texts = pa.array([reasons[row] for row in rows], pa.string())
    names = [*batch.schema.names, REASON]
    return pa.RecordBatch.from_arrays([*chosen.columns, texts], names=names)


def check_typed_file(table: Path, file: TypedFile) -> int:
    """Read one file again; runs on a worker. Returns the number of its rows."""
    path = table / file.path
    if not path.exists():
        raise DamagedArchive(f"{path} is missing, though a manifest names it; restore it.")
    if file_checksum(path) != file.crc32c:
        raise DamagedArchive(f"{path} has other bytes than were written; restore it.")
    rows = int(pq.read_metadata(path).num_rows)
    if rows != file.rows:
        raise DamagedArchive(f"{path} has {rows} rows, and {file.rows} were written; restore it.")
    return rows
