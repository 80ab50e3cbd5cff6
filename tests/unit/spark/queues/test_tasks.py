"""The rows of a task: those of its runs, with what the runs say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from goqueue.client import RawBatch
from goqueue.model.batch import read_header
from goqueue.model.errors import InvalidRequest
from goqueue.spark import reading
from goqueue.spark.options import ReadOptions
from goqueue.spark.planning import OffsetRange
from goqueue.spark.queues.offsets import GAP_RECORDS_MAX, Run, Share
from goqueue.spark.queues.tasks import (
    QueueTask,
    check_schema,
    choose_rows,
    queue_schema,
    read_queue_task,
)
from goqueue.spark.reading import RangeReader
from tests.unit.spark.queues.queue_world import an_options
from tests.unit.spark.spark_broker import ZERO, SparkBroker

RUNS = [Run(2, 4, 1, "normal"), Run(6, 7, 3, "high")]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SparkBroker:
    broker = SparkBroker()

    def read_batches(options: ReadOptions, wanted: OffsetRange) -> Iterator[RawBatch]:
        for batches in RangeReader(broker.client(), options, wanted).rounds():
            yield from (one for one in batches if read_header(one.data).base_offset < wanted.end)

    monkeypatch.setattr(reading, "read_batches", read_batches)
    return broker


def read(broker: SparkBroker, runs: list[Run], schema: StructType) -> list[pa.RecordBatch]:
    share = Share(ZERO, broker.topic_id("orders").hex(), runs)
    return list(read_queue_task(an_options(), QueueTask(share), schema))


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_only_rows_of_the_runs_are_handed_on() -> None:
    batch = pa.RecordBatch.from_pydict({"offset": pa.array(range(10), pa.int64())})
    chosen = choose_rows(batch, RUNS, ["deliveryCount", "offset", "priority"])
    assert chosen.schema.names == ["deliveryCount", "offset", "priority"]
    assert chosen.schema.field("deliveryCount").type == pa.int32()
    assert chosen.to_pylist() == [
        {"deliveryCount": 1, "offset": 2, "priority": "normal"},
        {"deliveryCount": 1, "offset": 3, "priority": "normal"},
        {"deliveryCount": 3, "offset": 6, "priority": "high"},
    ]
    assert choose_rows(batch, RUNS, []).num_rows == 3


def test_a_task_reads_its_runs_from_the_log(broker: SparkBroker) -> None:
    broker.write(ZERO, 5)
    broker.write(ZERO, 5)
    found = rows(read(broker, RUNS, queue_schema(has_headers=False)))
    assert [(one["offset"], one["deliveryCount"], one["priority"]) for one in found] == [
        (2, 1, "normal"),
        (3, 1, "normal"),
        (6, 3, "high"),
    ]
    assert {(one["topic"], one["value"]) for one in found} == {("orders", b"x" * 10)}


def test_only_the_columns_that_are_named_are_handed_on(broker: SparkBroker) -> None:
    broker.write(ZERO, 10)
    only = StructType([StructField("deliveryCount", IntegerType())])
    assert rows(read(broker, RUNS, only)) == [{"deliveryCount": n} for n in (1, 1, 3)]
    assert sum(one.num_rows for one in read(broker, RUNS, StructType([]))) == 3


def test_what_lies_far_between_is_not_read(broker: SparkBroker) -> None:
    far = 2 * GAP_RECORDS_MAX
    for _ in range(far // 1000 + 1):
        broker.write(ZERO, 1000)
    runs = [Run(0, 1, 1, "normal"), Run(far, far + 1, 1, "normal")]
    assert [one["offset"] for one in rows(read(broker, runs, queue_schema(has_headers=False)))] == [
        0,
        far,
    ]


def test_an_empty_epoch_is_a_task_that_says_nothing(broker: SparkBroker) -> None:
    task = InputPartition(None)
    assert list(read_queue_task(an_options(), task, queue_schema(has_headers=False))) == []


def test_columns_that_a_queue_does_not_have_are_named() -> None:
    check_schema(queue_schema(has_headers=True))
    with pytest.raises(InvalidRequest, match=r"no column 'lane'; a queue has key.*deliveryCount"):
        check_schema(StructType([StructField("lane", StringType())]))
    with pytest.raises(InvalidRequest, match="'deliveryCount' is of type int, not string"):
        check_schema(StructType([StructField("deliveryCount", StringType())]))
    with pytest.raises(InvalidRequest, match="'offset' is of type bigint"):
        check_schema(StructType([StructField("offset", StringType())]))
