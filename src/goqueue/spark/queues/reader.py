"""A queue group as a stream: each micro-batch is a set of messages delivered by the group.

The messages of an epoch are done when Spark has committed it, and not before. Spark's request for
the next epoch implies the commit; the listener detects it sooner. Both make the same call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from goqueue.model.errors import InvalidRequest
from goqueue.spark.driver_access import described
from goqueue.spark.portable import Portable
from goqueue.spark.queues.epochs import QueueEpochs, carrier
from goqueue.spark.queues.listener import SOURCE_NAME
from goqueue.spark.queues.offsets import (
    QueueOffset,
    Share,
    before_all,
    read_queue_offset,
    runs_of,
    shares,
)
from goqueue.spark.queues.options import MESSAGES_MAX, QueueOptions, with_address
from goqueue.spark.queues.tasks import QueueTask, check_schema, read_queue_task

if TYPE_CHECKING:
    import pyarrow as pa


class QueueStreamReader(Portable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans epochs. Spark keeps one instance per query, and sends copies to tasks."""

    def __init__(self, options: QueueOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._planner: QueuePlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}  # Connections stay with the driver.

    @property
    def _driver(self) -> QueuePlanner:
        if self._planner is None:
            options = with_address(self._options)
            api = carrier(options.http, options.read.access)
            planner = QueuePlanner(options, QueueEpochs(api, options))
            planner.check()
            self._planner = planner
        return self._planner

    def initialOffset(self) -> dict[str, Any]:
        return self._driver.initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.stop_at_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        is_limited = not isinstance(limit, ReadAllAvailable)
        end = self._driver.next_end(read_queue_offset(start), is_limited=is_limited)
        return start if end is None else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [QueueTask(one) for one in self._driver.tasks(read_queue_offset(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_queue_task(self._options, partition, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._driver.finish(read_queue_offset(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


class QueuePlanner:
    """The driver's part: which epoch is in progress, and which comes next."""

    def __init__(self, options: QueueOptions, epochs: QueueEpochs) -> None:
        self._options = options
        self._epochs = epochs
        self.initial = before_all(options.group)
        self._offered: tuple[QueueOffset, QueueOffset] | None = None  # not yet in the checkpoint
        self._finished: QueueOffset | None = None
        self._is_settled = False  # whether messages of a previous instance have been released
        self._is_bounded = False
        self._budget: int | None = None

    def check(self) -> None:
        self._epochs.check_group()

    def close(self) -> None:
        """Release the messages that Spark has not begun to read.

        Those that it has begun are in its checkpoint, and will be read when the query restarts.
        """
        if self._offered is not None:
            self._epochs.release(self._offered[1].transaction)
            self._offered = None
        self._epochs.close()

    def stop_at_what_is_there(self) -> None:
        """Take no more messages than are waiting when the first epoch has been taken."""
        self._is_bounded = True
        self._budget = None

    def next_end(self, begun: QueueOffset, *, is_limited: bool) -> QueueOffset | None:
        """Return the epoch after `begun`, which is done; None when there is none yet."""
        self.finish(begun)
        if self._offered is not None and self._offered[0] == begun:
            return self._offered[1]
        self._offered = None
        self._settle(begun, kept="")
        messages_max = self._options.messages_max if is_limited else MESSAGES_MAX
        if self._budget is not None:
            messages_max = min(messages_max, self._budget)
        if not messages_max:
            return None
        # Before the messages: a topic recreated meanwhile must not be mistaken for the old one.
        ids = self._epochs.topic_ids(self._options.read.topics)
        held = self._epochs.take(
            begun.query, begun.epoch + 1, messages_max, waits=not self._is_bounded
        )
        if held is None:
            self._spend(0)
            return None
        runs = runs_of(held.positions)
        end = QueueOffset(
            begun.group,
            begun.query,
            held.run,
            begun.epoch + 1,
            held.transaction,
            {one.topic: ids[one.topic] for one in runs},
            runs,
        )
        self._offered = (begun, end)
        self._spend(end.count)
        return end

    def _spend(self, taken: int) -> None:
        if self._budget is not None:
            self._budget = max(0, self._budget - taken)
        elif self._is_bounded:
            # Only now: a group has no count of waiting messages before its first receive.
            self._budget = self._epochs.waiting_count() if taken else 0

    def tasks(self, end: QueueOffset) -> list[Share]:
        """Split an epoch into tasks. After a restart it is the checkpointed one, and read again.

        The previous epoch is done: it was committed before this one was taken.
        """
        self._check(end)
        self._offered = None
        self._settle(end, kept=end.transaction)
        read = self._options.read
        return shares(end, tasks_min=read.tasks_min, records_max=read.records_per_task_max)

    def finish(self, done: QueueOffset) -> None:
        """Acknowledge an epoch that Spark has committed."""
        self._check(done)
        if done != self._finished:
            self._epochs.commit(done)
            self._finished = done

    def _check(self, offset: QueueOffset) -> None:
        if offset.group != self._options.group:
            raise InvalidRequest(
                f"The checkpoint is of group {offset.group!r}, not {self._options.group!r}; a "
                "query keeps its group, so begin with a new checkpoint."
            )

    def report(self) -> dict[str, Any]:
        """Return what the listener needs to commit epochs of this query."""
        login = described(self._options.read.access)
        return {"http": self._options.http, "source": SOURCE_NAME, **login}

    def _settle(self, offset: QueueOffset, *, kept: str) -> None:
        """Release, once, messages that a previous instance took but did not checkpoint."""
        if not self._is_settled:
            self._epochs.release_others(offset.query, kept)
            self._is_settled = True
