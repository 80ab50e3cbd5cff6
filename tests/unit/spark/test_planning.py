"""From options to ranges, and from ranges to tasks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidRequest, OffsetOutOfRange, UnknownPartition, UnknownTopic
from goqueue.model.names import TopicPartition
from goqueue.spark.options import ReadOptions, read_options
from goqueue.spark.planning import (
    TASKS_PER_PARTITION_MAX,
    OffsetRange,
    check_complete,
    chosen_ranges,
    look,
    record_bytes,
    split,
)
from tests.unit.spark.spark_broker import ONE, TWO, ZERO, SparkBroker, table_options


@pytest.fixture
def broker() -> SparkBroker:
    """Partition 0 keeps 40 to 99, partition 1 0 to 9, partition 2 nothing."""
    broker = SparkBroker()
    broker.topics |= {"payments": 1, "__offsets": 1}
    broker.write(ZERO, 100)
    broker.starts[ZERO] = 40
    broker.write(ONE, 10)
    broker.write(TopicPartition("payments", 0), 5)
    return broker


def bounds(broker: SparkBroker, options: ReadOptions) -> list[tuple[str, int, int]]:
    client = broker.client()
    ranges = chosen_ranges(client, options, look(client, options))
    return [(str(one.partition), one.start, one.end) for one in ranges]


def test_a_table_is_all_that_is_kept(broker: SparkBroker) -> None:
    assert bounds(broker, table_options()) == [("orders/0", 40, 100), ("orders/1", 0, 10)]


def test_ranges_know_the_id_of_their_topic(broker: SparkBroker) -> None:
    client = broker.client()
    ranges = chosen_ranges(client, table_options(), look(client, table_options()))
    assert {one.topic_id for one in ranges} == {broker.topic_id("orders").hex()}


def test_topics_are_named_or_matched_or_assigned(broker: SparkBroker) -> None:
    def partitions(**options: str) -> list[str]:
        return [one for one, _, _ in bounds(broker, read_options(options, is_streaming=False))]

    assert partitions(subscribe="payments,orders") == ["orders/0", "orders/1", "payments/0"]
    assert partitions(subscribePattern=".*a.*") == ["payments/0"]
    assert partitions(subscribePattern="__.*") == []
    assert partitions(subscribePattern="pay") == []
    assert partitions(assign='{"orders": [1]}') == ["orders/1"]
    assert partitions(subscribe="orders", partitions="1,2,9") == ["orders/1"]
    with pytest.raises(UnknownTopic):
        partitions(subscribe="orders,other")
    with pytest.raises(UnknownPartition, match="orders/7"):
        partitions(assign='{"orders": [1, 7]}')


def test_offsets_bound_the_ranges(broker: SparkBroker) -> None:
    both = table_options(startingOffsets="50", endingOffsets="60")
    assert bounds(broker, both) == [("orders/0", 50, 60)]
    some = table_options(
        startingOffsets='{"orders": {"0": 90, "1": -2, "2": -2}}',
        endingOffsets='{"orders": {"1": 3, "0": -1, "2": -1}}',
    )
    assert bounds(broker, some) == [("orders/0", 90, 100), ("orders/1", 0, 3)]
    assert bounds(broker, table_options(startingOffsets="5", endingOffsets="3")) == []


def test_an_offset_that_is_not_kept_is_an_error_unless_losses_are_no_matter(
    broker: SparkBroker,
) -> None:
    given = {"startingOffsets": '{"orders": {"0": 7, "1": -2, "2": -2}}'}
    with pytest.raises(OffsetOutOfRange, match="40 to 100"):
        bounds(broker, table_options(**given))
    found = bounds(broker, table_options(**given, failOnDataLoss="false"))
    assert found == [("orders/0", 40, 100), ("orders/1", 0, 10)]


def test_offsets_of_partitions_that_are_not_read_are_an_error(broker: SparkBroker) -> None:
    with pytest.raises(InvalidRequest, match=r"name orders/5, other/0, which"):
        bounds(broker, table_options(startingOffsets='{"orders": {"5": 1}, "other": {"0": 1}}'))


def test_a_map_that_leaves_out_a_partition_is_an_error(broker: SparkBroker) -> None:
    def check(options: ReadOptions) -> None:
        check_complete(options, look(broker.client(), options))

    with pytest.raises(InvalidRequest, match="say nothing of orders/1, orders/2"):
        check(table_options(startingOffsets='{"orders": {"0": 50}}'))
    times = table_options(endingOffsetsByTimestamp='{"orders": {"1": 1, "2": 1}}')
    with pytest.raises(InvalidRequest, match="say nothing of orders/0"):
        check(times)
    options = {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": 50}}'}
    check(read_options(options, is_streaming=False))


def test_what_is_missing_may_be_left_out(broker: SparkBroker) -> None:
    options = read_options({"subscribe": "orders,other"}, is_streaming=True)
    seen = look(broker.client(), options, skips_missing=True)
    assert list(seen.ids) == ["orders"]
    options = read_options({"assign": '{"orders": [1, 7], "x": [0]}'}, is_streaming=True)
    assert list(look(broker.client(), options, skips_missing=True).kept) == [ONE]


def test_bytes_per_record_are_the_size_on_disk_over_what_is_kept(broker: SparkBroker) -> None:
    client = broker.client()
    sizes = record_bytes(client, look(client, table_options()))
    assert sizes[ZERO] == sum(map(len, broker.logs[ZERO])) / 60
    assert TWO not in sizes


def test_ranges_are_cut_by_bytes_by_records_and_into_as_many_as_are_wanted() -> None:
    one, two = OffsetRange(ZERO, 100, 200), OffsetRange(ONE, 0, 300)
    sizes = {ZERO: 1000.0, ONE: 1000.0}

    def lengths(**options: int) -> list[int]:
        return [task.count for task in split([one, two], sizes, ReadOptions("x:1", **options))]

    assert lengths() == [100, 300]
    assert lengths(split_bytes=100_000) == [100, 100, 100, 100]
    assert lengths(records_per_task_max=60) == [50, 50, 60, 60, 60, 60, 60]
    assert lengths(tasks_min=4) == [100, 100, 100, 100]
    assert len(lengths(tasks_min=1_000_000)) == 400
    many = split([OffsetRange(ZERO, 0, 1 << 40)], {}, ReadOptions("x:1", tasks_min=1 << 30))
    assert len(many) == TASKS_PER_PARTITION_MAX


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 500)), max_size=4),
    st.integers(0, 100),
    st.integers(1, 100),
)
def test_tasks_hold_each_offset_once(
    spans: list[tuple[int, int]], tasks_min: int, records: int
) -> None:
    ranges = [
        OffsetRange(TopicPartition("orders", number), start, start + count, "id")
        for number, (start, count) in enumerate(spans)
    ]
    options = ReadOptions("x:1", tasks_min=tasks_min, records_per_task_max=records)
    tasks = split(ranges, {}, options)
    assert len(tasks) >= tasks_min or len(tasks) == sum(one.count for one in ranges)
    for whole in ranges:
        pieces = [task for task in tasks if task.partition == whole.partition]
        assert (pieces[0].start, pieces[-1].end) == (whole.start, whole.end)
        assert all(before.end == after.start for before, after in pairwise(pieces))
        assert all(0 < piece.count <= records for piece in pieces)
        assert [piece.is_first for piece in pieces] == [True] + [False] * (len(pieces) - 1)
        assert {piece.topic_id for piece in pieces} == {"id"}
