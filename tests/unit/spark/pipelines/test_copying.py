"""A copy keeps order and content, and after a crash goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from goqueue.client import LogClient, Topics
from goqueue.client.producer import Producer
from goqueue.client.settings import ProducerSettings
from goqueue.model.batch import Record
from goqueue.model.errors import InvalidRequest
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines import copying
from goqueue.spark.pipelines.copy_progress import Steps, all_steps, copied
from goqueue.spark.pipelines.copying import (
    MARK_HEADER,
    CopyOrder,
    by_source,
    check_order,
    copy_rows,
    topic_ends,
    without_marks,
)
from goqueue.spark.pipelines.digests import digest_of
from tests.unit.client.fake_broker import LOSE_ANSWER, Fault
from tests.unit.spark.pipelines.rows import batch
from tests.unit.spark.spark_broker import SparkBroker

SOURCE = TopicPartition("source", 1)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SparkBroker:
    broker = SparkBroker()
    monkeypatch.setattr(copying, "connect_again", lambda _: client_of(broker))
    monkeypatch.setattr(copying, "STEP_RECORDS", 10)
    return broker


def client_of(broker: SparkBroker) -> LogClient:
    client = broker.client()
    client.topics = Topics(client.cluster)

    def producer(settings: ProducerSettings | None = None) -> Producer:
        return Producer(broker.cluster(), settings, now_ms=lambda: 77)

    client.producer = producer  # type: ignore[method-assign]
    return client


def order(folder: Path, **fields: Any) -> CopyOrder:
    return CopyOrder(bootstrap="fake", target="orders", run_id="run", state=folder, **fields)


def source_rows(count: int) -> pa.RecordBatch:
    rows = [{"key": b"k%d" % (n % 7), "value": b"%d" % n, "timestamp": n} for n in range(count)]
    return batch(rows, topic=SOURCE.topic, partition=SOURCE.partition)


def copy(order: CopyOrder, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for found in copy_rows(order, batches) for row in found.to_pylist()]


def stored(broker: SparkBroker) -> list[Record]:
    return [one for n in range(3) for one in broker.records(TopicPartition("orders", n))]


def values(broker: SparkBroker) -> list[int]:
    return sorted(int(one.value or b"") for one in stored(broker))


def test_records_go_where_their_keys_belong_in_order(broker: SparkBroker, tmp_path: Path) -> None:
    rows = source_rows(35)
    (done,) = copy(order(tmp_path), rows.slice(0, 13), rows.slice(13))
    assert done == {"topic": "source", "partition": 1, "copied": 35, "present": 0}
    for number in range(3):
        found = broker.records(TopicPartition("orders", number))
        assert all(partition_of_key(one.key or b"", 3) == number for one in found)
        assert [one.timestamp_ms for one in found] == sorted(one.timestamp_ms for one in found)
    assert copied(all_steps(tmp_path).values()) == digest_of(rows)
    (again,) = copy(order(tmp_path), rows)
    assert (again["copied"], again["present"]) == (0, 35)
    assert len(stored(broker)) == 35


def test_partition_and_time_are_as_ordered(broker: SparkBroker, tmp_path: Path) -> None:
    copy(order(tmp_path, partitioning="same", keeps_timestamps=False), source_rows(5))
    found = broker.records(TopicPartition("orders", 1))
    assert [one.timestamp_ms for one in found] == [77] * 5


def crash_at_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The records of a step are stored, and then the machine dies."""
    note = Steps.add

    def add(self: Steps, step: Any) -> None:
        if len(self.done) == number:
            raise KeyboardInterrupt
        note(self, step)

    monkeypatch.setattr(Steps, "add", add)


def test_a_crash_repeats_one_step_at_most(
    broker: SparkBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as crashing:
        crash_at_step(crashing, 1)
        with pytest.raises(KeyboardInterrupt):
            copy(order(tmp_path), source_rows(35))
    (done,) = copy(order(tmp_path), source_rows(35))
    assert (done["copied"], done["present"]) == (25, 10)
    assert values(broker) == sorted([*range(35), *range(10, 20)])


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_marked_records_are_written_once_whatever_crashes(
    broker: SparkBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    broker.write(TopicPartition("orders", 0), 3)
    wanted = order(tmp_path, is_marked=True, target_ends=topic_ends(client_of(broker), "orders"))
    with monkeypatch.context() as crashing:
        crash_at_step(crashing, number)
        with pytest.raises(KeyboardInterrupt):
            copy(wanted, source_rows(35))
    rows = source_rows(35)
    (done,) = copy(wanted, rows)
    assert done["present"] == min(10 * (number + 1), 35)
    del broker.logs[TopicPartition("orders", 0)][0]
    assert values(broker) == list(range(35))
    assert copied(all_steps(tmp_path).values()) == digest_of(rows)
    places = {
        (one.partition, offset)
        for steps in all_steps(tmp_path).values()
        for step in steps
        for one in step.stored
        for offset in range(one.first, one.last + 1)
    }
    assert len(places) == 35


def test_an_answer_that_is_lost_leaves_no_record_twice(broker: SparkBroker, tmp_path: Path) -> None:
    broker.faults.append(Fault(LOSE_ANSWER))
    copy(order(tmp_path), source_rows(20))
    assert values(broker) == list(range(20))
    steps = all_steps(tmp_path)[SOURCE]
    placed = sum(one.last - one.first + 1 for step in steps for one in step.stored)
    assert placed + sum(step.unplaced for step in steps) == 20


def test_marks_are_taken_off_before_records_are_compared() -> None:
    bare = batch([{}, {"headers": [{"key": "a", "value": b"1"}]}])
    mark = {"key": MARK_HEADER, "value": b"run/source/1/0"}
    marked = batch([{"headers": [mark]}, {"headers": [{"key": "a", "value": b"1"}, mark]}])
    assert without_marks(marked).equals(bare)
    assert without_marks(bare).equals(bare)


def test_rows_are_cut_where_a_source_ends() -> None:
    places = [("a", 0), ("a", 0), ("a", 1), ("b", 1), ("b", 1)]
    rows = batch([{"topic": topic, "partition": number} for topic, number in places])
    found = [(str(source), len(some)) for source, some in by_source([rows, rows.slice(3)])]
    assert found == [("a/0", 2), ("a/1", 1), ("b/1", 2), ("b/1", 2)]


def test_a_target_with_too_few_partitions_is_refused(tmp_path: Path) -> None:
    wanted = order(tmp_path, partitioning="same")
    with pytest.raises(InvalidRequest, match="has 2 partitions and the source 3"):
        check_order(wanted, source_partitions=3, target_partitions=2)
    check_order(wanted, source_partitions=2, target_partitions=2)
    check_order(order(tmp_path), source_partitions=3, target_partitions=2)
