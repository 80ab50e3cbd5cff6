"""Streams: where they begin, how much they take, and what they say when records are gone."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.losses import DataLost
from goqueue.spark.schema import table_schema
from goqueue.spark.streams.offsets import StreamOffset, read_offset
from goqueue.spark.streams.reader import Planner, StreamReader
from tests.unit.spark.spark_broker import ONE, TWO, ZERO, SparkBroker, stream_options

ALL = ReadAllAvailable()
LIMITED = ReadMaxRows(0)  # Only its kind counts: the numbers are in the options.


@pytest.fixture
def broker() -> SparkBroker:
    broker = SparkBroker()
    broker.write(ZERO, 100)
    broker.write(ONE, 10)
    return broker


def planner(broker: SparkBroker, **options: str) -> Planner:
    return Planner(
        stream_options(**options), broker.client(), now_ms=lambda: broker.clock.now * 1000
    )


def positions(offset: StreamOffset | None) -> dict[int, int]:
    assert offset is not None
    return {one.partition: position for one, position in offset.positions.items()}


def ranges(stream: Planner, start: StreamOffset, end: StreamOffset) -> list[tuple[int, int, int]]:
    return [(one.partition.partition, one.start, one.end) for one in stream.tasks(start, end)]


# Where it begins and how far it goes


def test_a_stream_begins_where_its_options_say(broker: SparkBroker) -> None:
    assert positions(planner(broker).initial()) == {0: 0, 1: 0, 2: 0}
    latest = planner(broker, startingOffsets="latest")
    assert positions(latest.initial()) == {0: 100, 1: 10, 2: 0}


def test_a_batch_ends_where_the_partitions_do(broker: SparkBroker) -> None:
    stream = planner(broker)
    start = stream.initial()
    end = stream.next_end(start, ALL)
    assert positions(end) == {0: 100, 1: 10, 2: 0}
    assert end is not None
    assert ranges(stream, start, end) == [(0, 0, 100), (1, 0, 10)]
    assert stream.next_end(end, ALL) is None
    broker.write(TWO, 3)
    assert positions(stream.next_end(end, ALL)) == {0: 100, 1: 10, 2: 3}


def test_a_limit_is_shared_and_the_rest_comes_later(broker: SparkBroker) -> None:
    stream = planner(broker, maxOffsetsPerTrigger="22")
    end = stream.next_end(stream.initial(), LIMITED)
    assert positions(end) == {0: 20, 1: 2, 2: 0}
    for _ in range(4):
        end = stream.next_end(end, LIMITED)
    assert positions(end) == {0: 100, 1: 10, 2: 0}
    assert stream.next_end(end, LIMITED) is None


def test_spark_may_ask_for_everything_whatever_the_options_say(broker: SparkBroker) -> None:
    stream = planner(broker, maxOffsetsPerTrigger="22", minOffsetsPerTrigger="22")
    assert positions(stream.next_end(stream.initial(), ALL)) == {0: 100, 1: 10, 2: 0}


def test_a_limit_of_bytes_goes_by_the_size_on_disk(broker: SparkBroker) -> None:
    size = sum(len(batch) for log in (ZERO, ONE) for batch in broker.logs[log])
    stream = planner(broker, maxBytesPerTrigger=str(size // 2))
    end = stream.next_end(stream.initial(), LIMITED)
    assert 50 <= sum(positions(end).values()) <= 60


def test_a_batch_waits_for_enough_records_but_not_for_ever(broker: SparkBroker) -> None:
    stream = planner(broker, minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    end = stream.next_end(stream.initial(), LIMITED)
    assert positions(end) == {0: 100, 1: 10, 2: 0}  # the first waits for nothing
    broker.write(TWO, 49)
    assert stream.next_end(end, LIMITED) is None
    broker.clock.sleep(10)
    end = stream.next_end(end, LIMITED)
    assert positions(end) == {0: 100, 1: 10, 2: 49}
    broker.write(TWO, 50)
    assert positions(stream.next_end(end, LIMITED)) == {0: 100, 1: 10, 2: 99}


def test_a_bounded_run_ends_though_more_arrives(broker: SparkBroker) -> None:
    stream = planner(broker, maxOffsetsPerTrigger="55", minOffsetsPerTrigger="55")
    start = stream.initial()
    stream.stop_at_what_is_there()
    end = stream.next_end(start, LIMITED)
    broker.write(ZERO, 500)
    broker.topics["orders"] = 4
    broker.write(TopicPartition("orders", 3), 5)
    end = stream.next_end(end, LIMITED)
    assert positions(end) == {0: 100, 1: 10, 2: 0}
    assert stream.next_end(end, LIMITED) is None
    later = planner(broker)
    assert positions(later.next_end(end, ALL)) == {0: 600, 1: 10, 2: 0, 3: 5}


def test_a_bounded_run_does_not_wait_for_partitions_that_are_gone(broker: SparkBroker) -> None:
    broker.topics["payments"] = 1
    broker.write(TopicPartition("payments", 0), 50)
    stream = planner(broker, subscribePattern=".*", failOnDataLoss="false")
    start = stream.initial()
    stream.stop_at_what_is_there()
    stream.next_end(start, LIMITED)
    del broker.topics["payments"]
    end = stream.next_end(start, LIMITED)
    assert end is not None
    assert list(end.ids) == ["orders"]
    assert positions(end) == {0: 100, 1: 10, 2: 0}


def test_new_partitions_and_topics_begin_at_their_log_start(broker: SparkBroker) -> None:
    stream = planner(broker, subscribePattern="orders|payments", startingOffsets="latest")
    start = stream.initial()
    broker.topics |= {"orders": 5, "payments": 1}
    three, new = TopicPartition("orders", 3), TopicPartition("payments", 0)
    assert stream.next_end(start, ALL) is None  # Names alone make no batch.
    broker.write(three, 7)
    broker.write(new, 4)
    broker.starts[new] = 1
    end = stream.next_end(start, ALL)
    assert end is not None
    assert end.positions == {ZERO: 100, ONE: 10, TWO: 0, three: 7, new: 4}
    found = stream.tasks(start, end)
    assert [(one.partition, one.start, one.end) for one in found] == [(three, 0, 7), (new, 1, 4)]


# Records that are gone


def begun(broker: SparkBroker) -> StreamOffset:
    stream = planner(broker)
    end = stream.next_end(stream.initial(), ALL)
    assert end is not None
    broker.write(ZERO, 100)
    return end


def expire(broker: SparkBroker) -> None:
    broker.starts[ZERO] = 150


def truncate(broker: SparkBroker) -> None:
    broker.ends[ZERO] = 60


def recreate(broker: SparkBroker) -> None:
    broker.recreate("orders")
    broker.starts.clear()
    broker.write(ZERO, 5)


def delete(broker: SparkBroker) -> None:
    del broker.topics["orders"]


LOSSES = [
    (expire, "Offsets 100 to 149 of orders/0 have been removed", {0: 200, 1: 10, 2: 0}),
    (truncate, "orders/0 ends at offset 60, but has been seen to reach offset 100",
     {0: 60, 1: 10, 2: 0}),
    (recreate, "Topic 'orders' was deleted and created again", {0: 5, 1: 0, 2: 0}),
    (delete, "Topic 'orders' is gone", {}),
]  # fmt: skip


@pytest.mark.parametrize(("lose", "text", "after"), LOSSES)
def test_a_loss_is_named_or_passed_over(
    broker: SparkBroker, lose: Any, text: str, after: dict[int, int]
) -> None:
    start = begun(broker)
    lose(broker)
    with pytest.raises(DataLost, match=text):
        planner(broker).next_end(start, ALL)
    tolerant = planner(broker, failOnDataLoss="false")
    end = tolerant.next_end(start, ALL)
    assert positions(end) == after
    assert end is not None
    assert tolerant.next_end(end, ALL) is None  # It is said once.


@pytest.mark.parametrize(
    ("lose", "text", "left"),
    [
        (expire, "Offsets 100 to 149 of orders/0", [(0, 150, 200)]),
        (truncate, "orders/0 ends at offset 60", []),
        (recreate, "created again", []),
        (delete, "Topic 'orders' is gone", []),
    ],
)
def test_a_batch_planned_before_a_restart_may_have_lost_records(
    broker: SparkBroker, lose: Any, text: str, left: list[tuple[int, int, int]]
) -> None:
    start = begun(broker)
    end = planner(broker).next_end(start, ALL)
    assert end is not None
    lose(broker)
    with pytest.raises(DataLost, match=text):
        ranges(planner(broker), start, end)
    assert ranges(planner(broker, failOnDataLoss="false"), start, end) == left


def test_after_a_topic_was_made_again_its_new_records_are_read(broker: SparkBroker) -> None:
    start = begun(broker)
    recreate(broker)
    tolerant = planner(broker, failOnDataLoss="false")
    end = tolerant.next_end(start, ALL)
    assert end is not None
    assert ranges(tolerant, start, end) == [(0, 0, 5)]


def test_all_losses_are_said_at_once(broker: SparkBroker) -> None:
    start = begun(broker)
    expire(broker)
    broker.starts[ONE] = 20
    broker.ends[ONE] = 20
    with pytest.raises(DataLost, match=r"orders/0.*orders/1.*failOnDataLoss"):
        planner(broker).next_end(start, ALL)


# The offset in the checkpoint


def test_an_offset_survives_the_checkpoint_letter_by_letter(broker: SparkBroker) -> None:
    broker.topics["orders"] = 12
    offset = planner(broker).initial()
    text = json.dumps(offset.to_json())
    assert read_offset(json.loads(text)) == offset
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_without_news_spark_gets_back_the_very_offset_it_gave(broker: SparkBroker) -> None:
    reader = StreamReader(stream_options(), table_schema(has_headers=False, view="records"))
    reader._planner = planner(broker)
    start = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), ALL)))
    assert json.dumps(reader.latestOffset(start, ALL)) == json.dumps(start)


@pytest.mark.parametrize(
    "found", [{}, {"orders": {"0": 3}}, {"version": 1, "group": "g", "topics": {"orders": 1}}, []]
)
def test_an_offset_of_another_source_is_refused(found: Any) -> None:
    with pytest.raises(InvalidRequest, match="no offset of this source"):
        read_offset(found)


def test_an_offset_of_another_version_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="version 2"):
        read_offset({"version": 2})


# Progress


def test_what_is_read_is_committed_when_the_next_batch_is_asked_for(broker: SparkBroker) -> None:
    stream = planner(broker, group="mine")
    start = stream.initial()
    end = stream.next_end(start, ALL)
    assert broker.commits == [("mine", {ZERO: 0, ONE: 0, TWO: 0})]
    for _ in range(3):
        assert stream.next_end(end, ALL) is None
    assert broker.commits[1:] == [("mine", {ZERO: 100, ONE: 10, TWO: 0})]


def test_a_query_without_a_group_has_one_in_its_checkpoint(broker: SparkBroker) -> None:
    stream = planner(broker)
    end = stream.next_end(stream.initial(), ALL)
    assert end is not None
    assert end.group.startswith("spark-orders-")
    again = planner(broker)
    again.next_end(end, ALL)
    assert broker.commits[-1][0] == end.group
    report = again.report()
    assert report is not None
    assert report["group"] == end.group
    assert report["bootstrap"] == "127.0.0.1:9092"
    assert report["topics"]["orders"]["partitions"] == {"0": 100, "1": 10, "2": 0}


def test_progress_that_cannot_be_shown_stops_nothing(
    broker: SparkBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.group_error = 25  # The group has members.
    stream = planner(broker, group="taken")
    end = stream.next_end(stream.initial(), ALL)
    assert positions(end) == {0: 100, 1: 10, 2: 0}
    assert "Group 'taken' does not show the progress" in caplog.text


# What Spark does with a reader


def test_a_reader_goes_to_tasks_without_its_connections(broker: SparkBroker) -> None:
    reader = StreamReader(stream_options(), table_schema(has_headers=False, view="records"))
    reader._planner = planner(broker)
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._planner is None


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "9"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "9", "minOffsetsPerTrigger": "1"}, ReadMaxBytes(9)),
        ({"minOffsetsPerTrigger": "7"}, ReadMinRows(7)),
    ],
)
def test_spark_is_told_that_there_are_limits(options: dict[str, str], limit: object) -> None:
    reader = StreamReader(
        stream_options(**options), table_schema(has_headers=False, view="records")
    )
    assert reader.getDefaultReadLimit() == limit


def test_planning_right_after_looking_does_not_look_again(broker: SparkBroker) -> None:
    stream = planner(broker)
    start = stream.initial()
    end = stream.next_end(start, ALL)
    assert end is not None
    before = broker.looks
    stream.tasks(start, end)
    assert broker.looks == before
    broker.clock.sleep(2)
    stream.tasks(start, end)
    assert broker.looks > before
