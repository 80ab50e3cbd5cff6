"""Records of a DataFrame into a topic, in the order of their source partitions.

The frame has the columns of the data source. It is laid out so that one task has all records of a
source partition, by offset, whichever task that is: how far a copy is depends on source partition
and offset alone, and a second run finds its place however Spark spreads the work.

Each step of STEP_RECORDS is stored before it is noted. After a crash the records of one unfinished
step per source partition are written again, unless they are marked: then the target is searched for
them first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from goqueue.client import Delivery, LogClient, ProducerSettings, Reader
from goqueue.model.batch import Header
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.connecting import connect_again
from goqueue.spark.pipelines.copy_progress import Step, Steps, is_within, ranges_of
from goqueue.spark.pipelines.digests import Digest, digest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from goqueue.spark.planning import OffsetRange

STEP_RECORDS = 10_000
# On a copied record, if it is marked: run, and topic, partition and offset of its source.
MARK_HEADER = "goqueue-copied-from"
RESULT_SCHEMA = "topic string, partition int, copied long, present long"

Partitioning = Literal["key", "same"]


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """Where records go, and how."""

    bootstrap: str
    target: str
    run_id: str
    state: Path
    keeps_timestamps: bool = True
    partitioning: Partitioning = "key"
    is_marked: bool = False
    target_ends: Mapping[int, int] = field(default_factory=dict)  # when the run began
    compression: Compression = Compression.NONE


def copy_frame(records: DataFrame, order: CopyOrder, *, tasks: int) -> DataFrame:
    """Write records to a topic when the result is read: a row for each source partition."""
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    ordered = (
        records.select(*columns)
        .repartition(max(tasks, 1), "topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )
    return ordered.mapInArrow(partial(copy_rows, order), RESULT_SCHEMA)


def copy_rows(order: CopyOrder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task, which come in order; runs on a worker."""
    client: LogClient | None = None
    copy: PartitionCopy | None = None
    done: list[dict[str, Any]] = []
    try:
        for source, rows in by_source(batches):
            client = client or connect_again(order.bootstrap)
            if copy is None or copy.source != source:
                if copy is not None:
                    done.append(copy.finish())
                copy = PartitionCopy(order, source, client)
            copy.add(rows)
        if copy is not None:
            done.append(copy.finish())
    finally:
        if client is not None:
            client.close()
    if done:
        yield pa.RecordBatch.from_pylist(done, schema=_RESULT_ARROW)


class PartitionCopy:
    """Copies the records of one source partition."""

    def __init__(self, order: CopyOrder, source: TopicPartition, client: LogClient) -> None:
        self.source = source
        self._order = order
        self._client = client
        self._steps = Steps(order.state, source)
        self._start = self._steps.offset_next
        self._present = 0
        self._copied = 0
        self._marks = Marks(order.run_id, source)
        # Records of this source that are stored and not noted, by offset: where they are.
        self._found: Mapping[int, tuple[int, int]] = {}
        if order.is_marked:
            since = self._steps.ends if self._steps.ends is not None else order.target_ends
            self._found = self._marks.search(client, order.target, since)
        self._producer = client.producer(ProducerSettings(compression=order.compression))

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows over, in steps; those that an earlier run has stored are passed over."""
        before = len(rows)
        rows = rows.filter(pa.array(rows["offset"].to_numpy() >= self._start))
        self._present += before - len(rows)
        for at in range(0, len(rows), STEP_RECORDS):
            self._step(rows.slice(at, STEP_RECORDS))

    def finish(self) -> dict[str, Any]:
        self._producer.close()
        return {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "copied": self._copied,
            "present": self._present,
        }

    def _step(self, rows: pa.RecordBatch) -> None:
        places: list[tuple[int, int]] = []
        deliveries = []
        for row in _plain_rows(rows):
            if row[0] in self._found:
                places.append(self._found[row[0]])
            else:
                deliveries.append(self._send(*row))
        self._present += len(places)
        self._producer.flush()
        stored = [delivery.result() for delivery in deliveries]
        places += [(one.partition, one.offset) for one in stored if one.offset >= 0]
        self._copied += len(stored)
        self._steps.add(
            Step(
                offset_next=int(rows["offset"][-1].as_py()) + 1,
                digest=digest_of(rows),
                stored=ranges_of(places),
                unplaced=len(rows) - len(places),
                ends=topic_ends(self._client, self._order.target) if self._order.is_marked else {},
            )
        )

    def _send(
        self,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        time_ms: int,
    ) -> Delivery:
        order = self._order
        return self._producer.send(
            order.target,
            value,
            key=key,
            headers=(*headers, self._marks.header(offset)) if order.is_marked else headers,
            timestamp_ms=time_ms if order.keeps_timestamps else None,
            partition=self.source.partition if order.partitioning == "same" else None,
        )


class Marks:
    """A header by which a copied record is known again: run, and place of its source."""

    def __init__(self, run_id: str, source: TopicPartition) -> None:
        self._prefix = f"{run_id}/{source.topic}/{source.partition}/".encode()

    def header(self, offset: int) -> Header:
        return MARK_HEADER, self._prefix + b"%d" % offset

    def search(
        self, client: LogClient, topic: str, since: Mapping[int, int]
    ) -> dict[int, tuple[int, int]]:
        """Marked records of this source at `since` or later: their places by source offset."""
        partitions = client.partitions([topic])
        kept = client.offsets.ranges(partitions)
        starts = {one: since.get(one.partition, 0) for one in partitions}
        reader = Reader(
            client.cluster,
            {one: min(max(starts[one], kept[one].start), kept[one].end) for one in partitions},
            ends={one: kept[one].end for one in partitions},
        )
        found: dict[int, tuple[int, int]] = {}
        for record in reader.records():
            for header in record.headers:
                offset = self._offset_in(header)
                if offset is not None:
                    found.setdefault(offset, (record.partition, record.offset))
        return found

    def _offset_in(self, header: Header) -> int | None:
        name, content = header
        if name != MARK_HEADER or content is None or not content.startswith(self._prefix):
            return None
        number = content.removeprefix(self._prefix)
        return int(number) if number.isdigit() else None


def topic_ends(client: LogClient, topic: str) -> dict[int, int]:
    """The next offset of each partition."""
    ranges = client.offsets.ranges(client.partitions([topic]))
    return {partition.partition: found.end for partition, found in ranges.items()}


# Proof


def target_digest(bootstrap: str, wanted: OffsetRange, ranges: list[tuple[int, int]]) -> Digest:
    """The digest of what a copy has stored in a range of the target; runs on a worker."""
    from goqueue.spark.columns import record_batches
    from goqueue.spark.options import ReadOptions
    from goqueue.spark.pipelines.archiving import archive_schema
    from goqueue.spark.reading import read_batches

    options = ReadOptions(bootstrap=bootstrap, topics=(wanted.partition.topic,), has_headers=True)
    found = Digest()
    for batch in record_batches(read_batches(options, wanted), wanted, archive_schema()):
        inside = is_within(batch["offset"].to_numpy(), ranges)
        found += digest_of(without_marks(batch.filter(pa.array(inside))))
    return found


def without_marks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records as they were before they were marked."""
    place = batch.schema.get_field_index("headers")
    headers = batch["headers"]
    if headers.null_count == len(batch):
        return batch
    bare = [
        None
        if row is None or not (kept := [one for one in row if one["key"] != MARK_HEADER])
        else kept
        for row in headers.to_pylist()
    ]
    return batch.set_column(place, batch.schema.field(place), pa.array(bare, headers.type))


# Rows

_RESULT_ARROW = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("copied", pa.int64()),
        pa.field("present", pa.int64()),
    ]
)
_Row = tuple[int, bytes | None, bytes | None, tuple[Header, ...], int]


def by_source(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Rows that come in order, cut where a source partition ends."""
    for batch in batches:
        if not len(batch):
            continue
        topics = np.array(batch["topic"].dictionary_encode().indices)
        numbers = batch["partition"].to_numpy()
        changes = np.flatnonzero((np.diff(topics) != 0) | (np.diff(numbers) != 0)) + 1
        bounds = [0, *changes.tolist(), len(batch)]
        for start, end in pairwise(bounds):
            source = TopicPartition(batch["topic"][start].as_py(), int(numbers[start]))
            yield source, batch.slice(start, end - start)


def _plain_rows(rows: pa.RecordBatch) -> Iterator[_Row]:
    times_ms = rows["timestamp"].cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    return zip(
        rows["offset"].to_pylist(),
        rows["key"].to_pylist(),
        rows["value"].to_pylist(),
        map(_headers, rows["headers"].to_pylist()),
        times_ms.tolist(),
        strict=True,
    )


def _headers(row: list[Mapping[str, Any]] | None) -> tuple[Header, ...]:
    return tuple((one["key"], one["value"]) for one in row or ())


def check_order(order: CopyOrder, *, source_partitions: int, target_partitions: int) -> None:
    if order.partitioning == "same" and target_partitions < source_partitions:
        raise InvalidRequest(
            f"Topic {order.target!r} has {target_partitions} partitions and the source "
            f"{source_partitions}; add some with `goqueue topic grow`, or partition by key."
        )
