"""Writes records to Parquet files on a worker: one file per hour and task, or one per task.

Values go from the decoder to Parquet as columns; Spark's own writer would pass every record through
the JVM and takes two to four times as long.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.digests import Digest, digest_of
from goqueue.spark.pipelines.folders import begin_sync, sync_file, sync_folder
from goqueue.spark.pipelines.manifests import DATA, ArchivedFile

Layout = Literal["time", "partition"]
LAYOUTS: tuple[Layout, ...] = ("time", "partition")

HOUR_MS = 3_600_000
ROW_GROUP_BYTES = 32 << 20
HELD_BYTES_MAX = 128 << 20  # of all open files together
FILES_OPEN_MAX = 64
_READ_BYTES = 1 << 20
# Storing lengths separately saves time if there are many values; long values are copied once more
# for it.
_VALUE_BYTES_SHORT = 400
_ALIKE = ["topic", "partition", "timestampType"]
_COUNTED = ["offset", "timestamp"]

Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, and the rows for its next row group."""

    path: Path
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    digest: Digest = field(default_factory=Digest)
    offsets: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch, times_ms: Ints) -> None:
        offsets = batch["offset"].to_numpy()
        self.offsets += [int(offsets.min()), int(offsets.max())]
        self.times_ms += [int(times_ms.min()), int(times_ms.max())]
        self.digest += digest_of(batch)
        self.waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting, self.waiting_bytes = [], 0
            begin_sync(self.path)

    def close(self, archive: Path) -> ArchivedFile:
        self.flush()
        self.writer.close()
        begin_sync(self.path)
        checksum = file_checksum(self.path)
        sync_file(self.path)
        return ArchivedFile(
            path=str(self.path.relative_to(archive)),
            bytes=self.path.stat().st_size,
            crc32c=checksum,
            digest=self.digest,
            first_offset=min(self.offsets),
            last_offset=max(self.offsets),
            timestamp_ms_min=min(self.times_ms),
            timestamp_ms_max=max(self.times_ms),
        )


class RecordFiles:
    """Writes the records of one partition into files, until it is closed.

    File names are unique to each attempt of a task, so a task that runs twice leaves stray files,
    but never a mixture.
    """

    def __init__(
        self, archive: Path, partition: TopicPartition, layout: Layout, schema: pa.Schema
    ) -> None:
        self._archive = archive
        self._partition = partition
        self._layout = layout
        self._schema = schema
        self._open: dict[int, _OpenFile] = {}
        self._closed: list[ArchivedFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        times_ms = batch["timestamp"].cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
        if self._layout == "partition":
            self._add(0, batch, times_ms)
            return
        first, last = int(times_ms.min()) // HOUR_MS, int(times_ms.max()) // HOUR_MS
        if first == last:  # as with most batches
            self._add(first, batch, times_ms)
            return
        hours = times_ms // HOUR_MS
        for hour in np.unique(hours).tolist():
            rows = np.flatnonzero(hours == hour)
            self._add(hour, batch.take(pa.array(rows)), times_ms[rows])

    def close(self) -> tuple[ArchivedFile, ...]:
        """Finish all files, with their bytes and names synced to disk."""
        for hour in list(self._open):
            self._close(hour)
        for folder in {(self._archive / file.path).parent for file in self._closed}:
            for one in (folder, *folder.parents):
                sync_folder(one)
                if one == self._archive:
                    break
        return tuple(sorted(self._closed, key=lambda file: (file.first_offset, file.path)))

    def discard(self) -> None:
        """Close and remove what was written, when a task fails."""
        for one in self._open.values():
            one.writer.close()
            one.path.unlink(missing_ok=True)
        for file in self._closed:
            (self._archive / file.path).unlink(missing_ok=True)
        self._open.clear()

    def _add(self, hour: int, batch: pa.RecordBatch, times_ms: Ints) -> None:
        if hour not in self._open:
            if len(self._open) >= FILES_OPEN_MAX:
                self._close(next(iter(self._open)))
            self._open[hour] = self._new_file(hour, batch)
        self._open[hour].add(batch, times_ms)
        if sum(one.waiting_bytes for one in self._open.values()) > HELD_BYTES_MAX:
            max(self._open.values(), key=lambda one: one.waiting_bytes).flush()

    def _new_file(self, hour: int, first: pa.RecordBatch) -> _OpenFile:
        name = f"{self._partition.partition:05d}-{uuid.uuid4().hex}.parquet"
        path = self._archive / DATA / folder_name(self._partition, self._layout, hour) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=1,
            # Dictionaries pay off where values repeat, which keys and payloads seldom do. Their
            # minima and maxima are not used for searches either.
            use_dictionary=_ALIKE,
            write_statistics=[*_ALIKE, *_COUNTED],
            column_encoding=_encodings(first),
        )
        return _OpenFile(path, writer)

    def _close(self, hour: int) -> None:
        self._closed.append(self._open.pop(hour).close(self._archive))


def _encodings(first: pa.RecordBatch) -> dict[str, str]:
    """Choose how columns are written, by the first rows of a file."""
    chosen = dict.fromkeys(_COUNTED, "DELTA_BINARY_PACKED")
    if first["value"].nbytes < _VALUE_BYTES_SHORT * len(first):
        chosen |= dict.fromkeys(["key", "value"], "DELTA_LENGTH_BYTE_ARRAY")
    return chosen


def folder_name(partition: TopicPartition, layout: Layout, hour: int) -> str:
    """Return the folder for the files of an hour since 1970, or of a partition."""
    topic = f"topic={quote(partition.topic, safe='')}"
    if layout == "partition":
        return f"{topic}/partition={partition.partition}"
    moment = str(np.datetime64(hour * 3600, "s"))  # also far outside the years of `datetime`
    date, _, time = moment.partition("T")
    return f"{topic}/date={date}/hour={time[:2]}"


def file_checksum(path: Path) -> int:
    """Return the checksum of a file's bytes."""
    found = 0
    with path.open("rb") as opened:
        while data := opened.read(_READ_BYTES):
            found = crc32c(data, found)
    return found


def read_rows(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, in batches of at most a row group."""
    with pq.ParquetFile(path) as opened:
        for group in range(opened.num_row_groups):
            yield from opened.read_row_group(group, columns).to_batches()


def latency_counts(latencies_ms: Iterable[Ints], buckets: int) -> list[int]:
    """Count values below 1 ms, 2 ms, 4 ms and so on; the last bucket takes the rest."""
    counts = np.zeros(buckets, np.int64)
    for some in latencies_ms:
        _, exponents = np.frexp(np.maximum(some, 0).astype(np.float64))  # 0, 1, 2, 2, 3, 3, 3, 3
        counts += np.bincount(np.minimum(exponents, buckets - 1), minlength=buckets)
    return [int(count) for count in counts]
