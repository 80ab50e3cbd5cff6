"""A copy keeps order and content, and whatever ends it, each record is in the target once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from goqueue.client import LogClient
from goqueue.model.batch import Record
from goqueue.model.errors import InvalidRequest, InvalidTransactionState
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines import copying
from goqueue.spark.pipelines.copy_progress import Steps, all_steps, copied
from goqueue.spark.pipelines.copy_verifying import without_marks
from goqueue.spark.pipelines.copying import (
    MARK_HEADER,
    CopyOrder,
    PartitionCopy,
    by_source,
    check_order,
    copy_rows,
    query_of,
    settle,
)
from goqueue.spark.pipelines.digests import digest_of
from tests.unit.client.fake_broker import LOSE_ANSWER, Fault
from tests.unit.spark.pipelines.fake_queries import FakeQueries
from tests.unit.spark.pipelines.rows import batch
from tests.unit.spark.spark_broker import SparkBroker

SOURCE = TopicPartition("source", 1)


@pytest.fixture
def broker() -> SparkBroker:
    return SparkBroker()


@pytest.fixture
def queries(broker: SparkBroker, monkeypatch: pytest.MonkeyPatch) -> FakeQueries:
    queries = FakeQueries()
    monkeypatch.setattr(copying, "connect_again", lambda *_: client_of(broker))
    monkeypatch.setattr(copying, "control", lambda *_: queries)
    monkeypatch.setattr(copying, "STEP_RECORDS", 10)
    return queries


def client_of(broker: SparkBroker) -> LogClient:
    return broker.client()


def order(folder: Path, **fields: Any) -> CopyOrder:
    return CopyOrder(
        bootstrap="fake",
        http="fake",
        target="orders",
        run_id="run",
        copy_id="id",
        state=folder,
        **fields,
    )


def source_rows(count: int) -> pa.RecordBatch:
    rows = [{"key": b"k%d" % (n % 7), "value": b"%d" % n, "timestamp": n} for n in range(count)]
    return batch(rows, topic=SOURCE.topic, partition=SOURCE.partition)


def copy(order: CopyOrder, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for found in copy_rows(order, batches) for row in found.to_pylist()]


def stored(broker: SparkBroker, queries: FakeQueries) -> list[Record]:
    partitions = [TopicPartition("orders", number) for number in range(3)]
    return [one for partition in partitions for one in queries.visible(broker, partition)]


def values(broker: SparkBroker, queries: FakeQueries) -> list[int]:
    return sorted(int(one.value or b"") for one in stored(broker, queries))


def test_records_go_where_their_keys_belong_in_order(
    broker: SparkBroker, queries: FakeQueries, tmp_path: Path
) -> None:
    rows = source_rows(35)
    (done,) = copy(order(tmp_path), rows.slice(0, 13), rows.slice(13))
    assert done == {"topic": "source", "partition": 1, "copied": 35, "present": 0}
    for number in range(3):
        found = queries.visible(broker, TopicPartition("orders", number))
        assert all(partition_of_key(one.key or b"", 3) == number for one in found)
        assert [one.timestamp_ms for one in found] == sorted(one.timestamp_ms for one in found)
    assert copied(all_steps(tmp_path).values()) == digest_of(rows)
    assert [one.digest.records for one in all_steps(tmp_path)[SOURCE]] == [10, 10, 10, 5]
    (again,) = copy(order(tmp_path), rows)
    assert (again["copied"], again["present"]) == (0, 35)
    assert values(broker, queries) == list(range(35))


def test_partition_and_time_are_as_ordered(
    broker: SparkBroker, queries: FakeQueries, tmp_path: Path
) -> None:
    copy(order(tmp_path, partitioning="same", keeps_timestamps=False), source_rows(5))
    found = queries.visible(broker, TopicPartition("orders", 1))
    assert len(found) == 5
    assert min(one.timestamp_ms for one in found) > 1_700_000_000_000


def test_marked_records_say_where_they_are_from(
    broker: SparkBroker, queries: FakeQueries, tmp_path: Path
) -> None:
    copy(order(tmp_path, is_marked=True), source_rows(12))
    for record in stored(broker, queries):
        assert record.headers == ((MARK_HEADER, b"run/source/1/%b" % (record.value or b"")),)


# What ends a copy: before a step is prepared, before it is noted, after it, after its commit.
CRASHES = ("prepare", "note", "commit", "committed")


def crash(monkeypatch: pytest.MonkeyPatch, queries: FakeQueries, moment: str, number: int) -> None:
    """The machine dies in the step of this number."""
    name, kind = {
        "prepare": ("prepare", FakeQueries),
        "note": ("add", Steps),
        "commit": ("commit", FakeQueries),
        "committed": ("commit", FakeQueries),
    }[moment]
    real: Any = getattr(kind, name)
    calls: list[None] = []

    def pending_letters(*arguments: Any, **named: Any) -> Any:
        calls.append(None)
        if len(calls) <= number:
            return real(*arguments, **named)
        if moment == "committed":
            real(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, name, pending_letters)
    # A machine that dies aborts nothing.
    monkeypatch.setattr(FakeQueries, "abort", lambda self, transaction_id: None)


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("moment", CRASHES)
@pytest.mark.parametrize("is_driver_first", [True, False])
def test_each_record_is_there_once_whatever_crashes(
    broker: SparkBroker,
    queries: FakeQueries,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    number: int,
    is_driver_first: bool,
) -> None:
    broker.write(TopicPartition("orders", 0), 3)
    rows = source_rows(35)
    with monkeypatch.context() as crashing:
        crash(crashing, queries, moment, number)
        with pytest.raises(KeyboardInterrupt):
            copy(order(tmp_path), rows)
    if is_driver_first:
        settle(order(tmp_path))
    (done,) = copy(order(tmp_path), rows)
    steps_kept = number + (moment == "committed")
    assert done["present"] == min(10 * steps_kept, 35)
    assert done["present"] + done["copied"] == 35
    del broker.logs[TopicPartition("orders", 0)][0]
    assert values(broker, queries) == list(range(35))
    assert copied(all_steps(tmp_path).values()) == digest_of(rows)
    assert len(places(tmp_path)) == 35


def places(folder: Path) -> set[tuple[int, int]]:
    return {
        (one.partition, offset)
        for steps in all_steps(folder).values()
        for step in steps
        for one in step.stored
        for offset in range(one.first, one.last + 1)
    }


def test_a_step_that_fails_is_aborted_at_once(
    broker: SparkBroker, queries: FakeQueries, tmp_path: Path
) -> None:
    def batches() -> Any:
        yield source_rows(15)
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="gone"):
        list(copy_rows(order(tmp_path), batches()))
    assert len(queries.aborted) == 1
    assert values(broker, queries) == list(range(10))


def test_a_task_that_was_given_up_is_turned_away(
    broker: SparkBroker, queries: FakeQueries, tmp_path: Path
) -> None:
    wanted, rows = order(tmp_path), source_rows(30)
    zombie = PartitionCopy(wanted, SOURCE, client_of(broker), queries)  # type: ignore[arg-type]
    zombie.add(rows.slice(0, 15))
    copy(wanted, rows.slice(0, 20))
    with pytest.raises(AssertionError):  # the fake's: its transaction is aborted
        zombie.finish()
    with pytest.raises(InvalidTransactionState):
        zombie._begin()
    copy(wanted, rows)
    assert values(broker, queries) == list(range(30))


def test_sources_are_told_apart_by_the_broker(tmp_path: Path) -> None:
    wanted = order(tmp_path)
    sources = [TopicPartition("a" * 249, 0), TopicPartition("a" * 248, 0), SOURCE]
    names = {query_of(wanted, one) for one in sources}
    assert len(names) == 3
    assert all(len(name) <= 100 for name in names)


def test_an_answer_that_is_lost_leaves_no_record_twice(
    broker: SparkBroker, queries: FakeQueries, tmp_path: Path
) -> None:
    broker.faults.append(Fault(LOSE_ANSWER))
    copy(order(tmp_path), source_rows(20))
    assert values(broker, queries) == list(range(20))
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
