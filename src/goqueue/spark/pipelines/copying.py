"""Copies records of a DataFrame into a topic, exactly once, in the order of source partitions.

The frame has the columns of the data source. It is partitioned so that one task has all records of
a source partition, sorted by offset. Any task may have them: the progress of a copy depends only on
source partition and offset, so a second run resumes however Spark distributes the work.

The copy of a source partition is a query of the broker, and each step of STEP_RECORDS an epoch of
it: written in a transaction, prepared, recorded on disk, committed. A step that was not committed
before a crash is aborted when the copy resumes, and written again. A superseded task that is still
running is fenced, because its successor has opened the query.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from goqueue.client import LogClient, Producer, ProducerSettings, ProducerTransaction
from goqueue.client.batching import Batch
from goqueue.client.http import Client
from goqueue.model.compression import Compression
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.queries import Attempt
from goqueue.spark.access import OPEN, Access
from goqueue.spark.connecting import PATIENCE_MS, connect_again
from goqueue.spark.pipelines.copy_progress import (
    DamagedProgress,
    Step,
    Steps,
    StoredRange,
    all_steps,
)
from goqueue.spark.pipelines.digests import Digest, digest_of
from goqueue.spark.sink.options import TIMEOUT_MS_DEFAULT
from goqueue.spark.sink.row_batches import RowWriter
from goqueue.spark.sink.rows import columns_of
from goqueue.spark.sink.tasks import control

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


STEP_RECORDS = 20_000
# Header of a marked record: run, and topic, partition and offset of its source.
MARK_HEADER = "goqueue-copied-from"
RESULT_SCHEMA = "topic string, partition int, copied long, present long"

Partitioning = Literal["key", "same"]


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """Where records are written, and how."""

    bootstrap: str
    http: str  # address of the broker's HTTP API, where transactions begin and end
    target: str
    run_id: str
    copy_id: str  # id of the copy on the broker; another run has another id
    state: Path
    keeps_timestamps: bool = True
    partitioning: Partitioning = "key"
    is_marked: bool = False
    compression: Compression = Compression.NONE
    access: Access = OPEN


def copy_frame(records: DataFrame, order: CopyOrder, *, tasks: int) -> DataFrame:
    """Write records to a topic when the result is read: a row for each source partition."""
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    ordered = (
        records.select(*columns)
        .repartition(max(tasks, 1), "topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )
    return ordered.mapInArrow(partial(copy_rows, order), RESULT_SCHEMA)


def settle(order: CopyOrder) -> None:
    """Start a new run of each copy that has begun, and abort what it had not committed."""
    begun = all_steps(order.state)
    if begun:
        with control(order.http, order.access) as api:
            for source in begun:
                open_copy(order, source, api)


def open_copy(order: CopyOrder, source: TopicPartition, api: Client) -> tuple[Steps, int]:
    """Return what is done of a source partition, and the number of the run that starts now."""
    opened = api.queries.open(query_of(order, source))
    steps = Steps(order.state, source)
    steps.settle(run=opened.run, epoch=opened.epoch)
    return steps, opened.run


def query_of(order: CopyOrder, source: TopicPartition) -> str:
    """Return the name of the copy of one source partition on the broker."""
    topic = hashlib.sha256(source.topic.encode()).hexdigest()[:16]  # names may be too long
    return f"copy-{order.copy_id}-{topic}-{source.partition}"


def copy_rows(order: CopyOrder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task, which are in order; runs on a worker."""
    done: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        copy: PartitionCopy | None = None
        clients: tuple[LogClient, Client] | None = None
        for source, rows in by_source(batches):
            if clients is None:
                log = stack.enter_context(connect_again(order.bootstrap, order.access))
                clients = log, stack.enter_context(control(order.http, order.access))
            if copy is None or copy.source != source:
                if copy is not None:
                    done.append(copy.finish())
                copy = stack.enter_context(PartitionCopy(order, source, *clients))
            copy.add(rows)
        if copy is not None:
            done.append(copy.finish())
    if done:
        yield pa.RecordBatch.from_pylist(done, schema=_RESULT_ARROW)


class PartitionCopy:
    """Copies the records of one source partition, step by step."""

    def __init__(
        self, order: CopyOrder, source: TopicPartition, client: LogClient, api: Client
    ) -> None:
        self.source = source
        self._order = order
        self._client = client
        self._api = api
        self._steps, self._run = open_copy(order, source, api)
        self._start = self._steps.offset_next
        self._present = 0
        self._copied = 0
        self._open: OpenStep | None = None

    def __enter__(self) -> PartitionCopy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Abort a failed step, so that readers of the target do not wait for it."""
        if self._open is not None:
            with contextlib.suppress(GoQueueError):
                self._api.transactions.abort(self._open.transaction_id)

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows, in steps; those stored by an earlier run are skipped."""
        before = len(rows)
        rows = rows.filter(pa.array(rows["offset"].to_numpy() >= self._start))
        self._present += before - len(rows)
        while len(rows):
            step = self._open = self._open or self._begin()
            taken = rows.slice(0, STEP_RECORDS - step.digest.records)
            step.add(taken)
            rows = rows.slice(len(taken))
            if step.digest.records >= STEP_RECORDS:
                self._commit()

    def finish(self) -> dict[str, Any]:
        """Commit the rest, and return what was done."""
        if self._open is not None:
            self._commit()
        return {
            "topic": self.source.topic,
            "partition": self.source.partition,
            "copied": self._copied,
            "present": self._present,
        }

    def _begin(self) -> OpenStep:
        name = f"step-{uuid.uuid4().hex[:16]}"
        query, epoch = query_of(self._order, self.source), self._steps.epoch_next
        attempt = Attempt(query, self._run, epoch, name)
        begun = self._api.queries.begin(attempt, timeout=TIMEOUT_MS_DEFAULT / 1000)
        transaction = ProducerTransaction(
            begun.transactional_id, ProducerIdentity(begun.producer_id, begun.producer_epoch)
        )
        return OpenStep(self._order, self.source, begun.id, transaction, self._client)

    def _commit(self) -> None:
        """Record the open step, then commit it: `Steps.settle` relies on this order."""
        step = self._open
        assert step is not None, "there is a step"
        stored = step.stored()
        self._api.queries.prepare(step.transaction_id)
        noted = Step(
            run=self._run,
            epoch=self._steps.epoch_next,
            offset_next=step.offset_next,
            digest=step.digest,
            stored=stored,
            unplaced=step.digest.records - sum(one.last - one.first + 1 for one in stored),
        )
        self._steps.add(noted)
        self._open = None  # From here on only the broker has its outcome.
        done = self._api.queries.commit(
            query_of(self._order, self.source),
            noted.epoch,
            run=self._run,
            transactions=[step.transaction_id],
        )
        if done.outcome != "committed":
            raise DamagedProgress(
                f"Step {noted.epoch} of {self.source} was committed by another task; run the "
                "pipeline again."
            )
        self._copied += noted.digest.records


class OpenStep:
    """A step that is being written, in its own transaction."""

    def __init__(
        self,
        order: CopyOrder,
        source: TopicPartition,
        transaction_id: str,
        transaction: ProducerTransaction,
        client: LogClient,
    ) -> None:
        self.transaction_id = transaction_id
        self.digest = Digest()
        self.offset_next = 0
        self._order = order
        self._source = source
        settings = ProducerSettings(compression=order.compression, delivery_ms_max=PATIENCE_MS)
        # It shares the connections of the task, so it is flushed and never closed.
        self._producer = Producer(client.cluster, settings, transaction=transaction)
        self._writer = RowWriter(self._producer, order.target)
        self._sent: list[Batch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows, without waiting until they are stored."""
        order = self._order
        left_out = [] if order.partitioning == "same" else ["partition"]
        left_out += [] if order.keeps_timestamps else ["timestamp"]
        extras = []
        if order.is_marked:
            extras.append((MARK_HEADER, marks(order.run_id, self._source, rows["offset"])))
        kept = rows.drop_columns(left_out) if left_out else rows
        self._sent += self._writer.write_columns(kept, columns_of(kept, extras=extras))
        self.digest += digest_of(rows)
        self.offset_next = int(rows["offset"][-1].as_py()) + 1

    def stored(self) -> tuple[StoredRange, ...]:
        """Wait until all rows are stored; return the offsets that the broker returned."""
        self._sent += self._writer.push()
        self._producer.flush()
        return tuple(
            StoredRange(one.partition.partition, one.base_offset, one.base_offset + one.count - 1)
            for one in self._sent
            if one.base_offset >= 0
        )


def marks(run_id: str, source: TopicPartition, offsets: pa.Array) -> pa.Array:
    """Return the header value of marked records: run, and position in the source."""
    prefix = f"{run_id}/{source.topic}/{source.partition}/"
    return pc.binary_join_element_wise(prefix, offsets.cast(pa.string()), "")


# Rows

_RESULT_ARROW = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("copied", pa.int64()),
        pa.field("present", pa.int64()),
    ]
)


def by_source(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Split ordered rows where a source partition ends."""
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


def check_order(order: CopyOrder, *, source_partitions: int, target_partitions: int) -> None:
    if order.partitioning == "same" and target_partitions < source_partitions:
        raise InvalidRequest(
            f"Topic {order.target!r} has {target_partitions} partitions and the source "
            f"{source_partitions}; add some with `goqueue topic grow`, or partition by key."
        )
