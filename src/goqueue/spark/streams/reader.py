"""A topic as a stream: micro-batches of offsets, planned on the driver and read by tasks.

Spark stores the offsets in its checkpoint, plans a batch, reads it, writes it and only then
requests the next one. So everything before the start offset of a request is done, and is committed
as the progress of the query's group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from goqueue.client import LogClient
from goqueue.model.names import TopicPartition
from goqueue.spark import losses
from goqueue.spark.connecting import connect
from goqueue.spark.driver_access import described
from goqueue.spark.options import ReadOptions
from goqueue.spark.planning import (
    OffsetRange,
    Snapshot,
    check_complete,
    look,
    position_offsets,
    record_bytes,
    split,
)
from goqueue.spark.portable import Portable
from goqueue.spark.schema import arrow_schema
from goqueue.spark.streams.admission import MinimumWait, share, share_bytes
from goqueue.spark.streams.offsets import (
    StreamOffset,
    batch_ranges,
    new_group,
    read_offset,
    reconcile,
)
from goqueue.spark.streams.progress import SOURCE_NAME, GroupProgress
from goqueue.spark.tasks import Task, read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from goqueue.spark.typed.table import TypedStep

SNAPSHOT_AGE_MS_MAX = 1_000  # maximum age of the offsets that a batch is planned with
SIZES_AGE_MS_MAX = 30_000  # record sizes are averages, and change slowly


class StreamReader(Portable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. Spark keeps one instance per query, and sends copies to tasks."""

    def __init__(
        self, options: ReadOptions, schema: StructType, step: TypedStep | None = None
    ) -> None:
        self._options = options
        self._step = step
        plain = schema if step is None else step.plain_schema(schema)
        self._schema = arrow_schema(plain, view=options.view)
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}  # Connections stay with the driver.

    @property
    def _driver(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(
                self._options, connect(self._options.bootstrap, self._options.access)
            )
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        return self._driver.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.trigger_offsets_max is not None:
            return ReadMaxRows(options.trigger_offsets_max)
        if options.trigger_bytes_max is not None:
            return ReadMaxBytes(options.trigger_bytes_max)
        if options.trigger_offsets_min is not None:
            return ReadMinRows(options.trigger_offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.stop_at_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = self._driver.next_end(read_offset(start), limit)
        return start if end is None else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Task(one) for one in self._driver.tasks(read_offset(start), read_offset(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition, self._schema, self._step)

    def commit(self, end: dict[str, Any]) -> None:
        self._driver.show(read_offset(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


def _now_ms() -> float:
    return time.monotonic() * 1000


class Planner:
    """The driver's part: the current position of the stream and its next batch."""

    def __init__(
        self, options: ReadOptions, client: LogClient, *, now_ms: Callable[[], float] = _now_ms
    ) -> None:
        self._options = options
        self._client = client
        self._now_ms = now_ms
        self._progress = GroupProgress()
        self._wait = MinimumWait(options.trigger_offsets_min or 0, options.trigger_delay_ms_max)
        self._seen: Snapshot | None = None
        self._seen_ms = 0.0
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_ms: float | None = None
        self._group = options.group_id
        self._planned: Mapping[TopicPartition, int] = {}  # where the last batch ends
        self._is_bounded = False
        self._target: dict[TopicPartition, int] | None = None

    def close(self) -> None:
        self._client.close()

    def initial(self) -> StreamOffset:
        """Return where a query without a checkpoint begins."""
        seen = look(self._client, self._options)
        check_complete(self._options, seen)
        positions = position_offsets(self._client, seen.kept, self._options.start, self._options)
        name = "-".join(sorted(seen.ids))
        self._group = self._group or new_group(self._options.group_prefix, name)
        return StreamOffset(self._group, seen.ids, positions)

    def stop_at_what_is_there(self) -> None:
        """Read up to the end offsets that the next plan finds, and no further.

        They are looked up then and not now, because a batch of an earlier run may come first, and
        partitions may be added or removed meanwhile.
        """
        self._is_bounded = True
        self._target = None

    def next_end(self, begun: StreamOffset, limit: ReadLimit) -> StreamOffset | None:
        """Return the end of the next batch; None when there is none yet."""
        self.show(begun)
        seen = self._look()
        positions, found = reconcile(begun, seen)
        losses.report(found, is_fatal=self._options.fails_on_data_loss)
        self._planned = positions
        waiting = {
            one: count
            for one, end in self._ends(seen).items()
            if (count := end - positions[one]) > 0
        }
        taken = self._admit(waiting, limit)
        if not taken and not found:
            return None
        # A new partition without records is omitted: naming it would create an empty batch.
        ends = {
            one: position + taken.get(one, 0)
            for one, position in positions.items()
            if one in begun.positions or one in taken
        }
        ids = {topic: seen.ids[topic] for topic in {one.topic for one in ends}}
        self._planned = ends
        return StreamOffset(begun.group, ids, ends)

    def tasks(self, begun: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """Return the ranges of a batch. After a restart it may be old, and its records gone."""
        seen = self._recent()
        ranges, found = batch_ranges(begun, end, seen)
        losses.report(found, is_fatal=self._options.fails_on_data_loss)
        return split(ranges, self._mean_sizes(seen) if ranges else {}, self._options)

    def show(self, done: StreamOffset) -> None:
        """Commit to the query's group; everything before this offset has been written."""
        self._group = self._group or done.group
        self._progress.commit(self._client, self._group, done.positions)

    def report(self) -> dict[str, Any] | None:
        """Return the end offsets of the partitions, with what the listener needs."""
        if self._seen is None or self._group is None:
            return None
        ends = {one: kept.end for one, kept in self._seen.kept.items()}
        return {
            **StreamOffset(self._group, self._seen.ids, ends).to_json(),
            "bootstrap": self._options.bootstrap,
            **described(self._options.access),
            "source": SOURCE_NAME,
            "metrics": self._lag(ends),
        }

    def _lag(self, ends: Mapping[TopicPartition, int]) -> dict[str, int | float]:
        """Return how far the last batch is behind the end offsets, named as in Kafka's source."""
        behind = {one: max(0, end - self._planned.get(one, end)) for one, end in ends.items()}
        counts = list(behind.values()) or [0]
        size = sum(self._sizes.get(one, 0.0) * count for one, count in behind.items())
        return {
            "avgOffsetsBehindLatest": sum(counts) / len(counts),
            "estimatedTotalBytesBehindLatest": round(size),
            "maxOffsetsBehindLatest": max(counts),
            "minOffsetsBehindLatest": min(counts),
            "totalOffsetsBehindLatest": sum(counts),
        }

    def _ends(self, seen: Snapshot) -> Mapping[TopicPartition, int]:
        """Return the limits of reading: the end offsets, or the target of a bounded run."""
        ends = {one: kept.end for one, kept in seen.kept.items()}
        if not self._is_bounded:
            return ends
        if self._target is None:
            self._target = ends
        # Later partitions are for the next run; removed ones are not waited for.
        return {one: min(ends[one], end) for one, end in self._target.items() if one in ends}

    def _admit(
        self, waiting: Mapping[TopicPartition, int], limit: ReadLimit
    ) -> dict[TopicPartition, int]:
        """Apply the limits of the options, unless Spark requests everything."""
        if not waiting:
            return {}
        if isinstance(limit, ReadAllAvailable):
            return dict(waiting)
        options = self._options
        # A bounded run would wait for records that it must not read.
        has_minimum = options.trigger_offsets_min is not None and not self._is_bounded
        if has_minimum and not self._wait.is_over(sum(waiting.values()), self._now_ms()):
            return {}
        taken = dict(waiting)
        if options.trigger_offsets_max is not None:
            taken = share(taken, options.trigger_offsets_max)
        if options.trigger_bytes_max is not None:
            sizes = self._mean_sizes(self._recent())
            taken = share_bytes(taken, sizes, options.trigger_bytes_max)
        return {one: count for one, count in taken.items() if count}

    def _look(self) -> Snapshot:
        # Missing topics and partitions are reported as a loss if the stream has begun to read them.
        self._seen = look(self._client, self._options, skips_missing=True)
        self._seen_ms = self._now_ms()
        return self._seen

    def _recent(self) -> Snapshot:
        """Return a recent snapshot, possibly cached: tasks detect later changes themselves."""
        if self._seen is None or self._now_ms() - self._seen_ms > SNAPSHOT_AGE_MS_MAX:
            return self._look()
        return self._seen

    def _mean_sizes(self, seen: Snapshot) -> dict[TopicPartition, float]:
        now_ms = self._now_ms()
        if self._sizes_ms is None or now_ms - self._sizes_ms > SIZES_AGE_MS_MAX:
            self._sizes, self._sizes_ms = record_bytes(self._client, seen), now_ms
        return self._sizes
