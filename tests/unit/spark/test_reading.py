"""A task reads its range, and notices what has become of it since it was planned."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from goqueue.client import LogClient, RawBatch
from goqueue.model.batch import encode_marker, read_header
from goqueue.model.errors import GoQueueError
from goqueue.spark import reading, workers
from goqueue.spark.losses import DataLost
from goqueue.spark.planning import OffsetRange
from goqueue.spark.reading import RangeReader, read_batches
from tests.unit.spark.spark_broker import ZERO, SparkBroker, serve_tasks, table_options


@pytest.fixture
def broker() -> SparkBroker:
    """Ten batches of ten records."""
    broker = SparkBroker()
    for _ in range(10):
        broker.write(ZERO, 10)
    return broker


def reader(broker: SparkBroker, start: int, end: int, **options: str) -> RangeReader:
    wanted = OffsetRange(ZERO, start, end, broker.topic_id("orders").hex())
    return RangeReader(broker.client(), table_options(**options), wanted)


def bases(batches: list[RawBatch]) -> list[int]:
    return [read_header(one.data).base_offset for one in batches]


def read(broker: SparkBroker, start: int, end: int, **options: str) -> list[int]:
    found = [one for batches in reader(broker, start, end, **options).rounds() for one in batches]
    return [one for one in bases(found) if one < end]


def test_the_batches_of_a_range_are_read(broker: SparkBroker) -> None:
    assert read(broker, 15, 40) == [10, 20, 30]


def test_what_only_marks_the_end_of_a_transaction_is_left_out(broker: SparkBroker) -> None:
    marker = encode_marker(
        is_commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    broker.append(ZERO, marker)
    broker.write(ZERO, 10)
    assert read(broker, 90, 111) == [90, 101]
    assert read(broker, 90, 101) == [90]


def test_removed_records_are_a_loss_or_passed_over(broker: SparkBroker) -> None:
    broker.starts[ZERO] = 35
    with pytest.raises(DataLost, match="Offsets 15 to 34 of orders/0 have been removed"):
        read(broker, 15, 60)
    assert read(broker, 15, 60, failOnDataLoss="false") == [30, 40, 50]
    with pytest.raises(DataLost, match="Offsets 15 to 19 of"):
        read(broker, 15, 20)
    assert read(broker, 15, 20, failOnDataLoss="false") == []


@pytest.mark.parametrize("start", [50, 70])
def test_a_log_that_ends_too_soon_is_a_loss_or_the_end(broker: SparkBroker, start: int) -> None:
    del broker.logs[ZERO][6:]
    with pytest.raises(DataLost, match="orders/0 ends at offset 60"):
        read(broker, start, 90)
    found = read(broker, start, 90, failOnDataLoss="false")
    assert found == [one for one in (50,) if one >= start]


def test_a_topic_made_again_is_not_read_instead(broker: SparkBroker) -> None:
    old = reader(broker, 0, 30)
    tolerant = reader(broker, 0, 30, failOnDataLoss="false")
    broker.recreate("orders")
    broker.write(ZERO, 50)
    with pytest.raises(DataLost, match="created again"):
        list(old.rounds())
    assert list(tolerant.rounds()) == []


def test_a_topic_made_again_while_it_is_read_is_an_error_whatever_the_options(
    broker: SparkBroker,
) -> None:
    rounds = reader(broker, 0, 30, failOnDataLoss="false").rounds()
    next(rounds)
    broker.recreate("orders")
    with pytest.raises(DataLost, match="created again"):
        list(rounds)


def test_a_deleted_topic_is_a_loss_or_nothing(broker: SparkBroker) -> None:
    strict, tolerant = reader(broker, 0, 30), reader(broker, 0, 30, failOnDataLoss="false")
    del broker.topics["orders"]
    with pytest.raises(DataLost, match="orders/0 is gone"):
        list(strict.rounds())
    assert list(tolerant.rounds()) == []


def test_a_broker_that_never_sends_what_it_says_it_has_is_named(
    broker: SparkBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkBroker, "_from", lambda *_: iter(()))
    monkeypatch.setattr(reading, "EMPTY_POLLS_MAX", 3)
    with pytest.raises(GoQueueError, match="sends nothing of orders/0 from offset 0 on"):
        list(reader(broker, 0, 30).rounds())


def test_a_task_goes_on_with_the_connection_of_the_one_before(
    broker: SparkBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[LogClient] = []

    def connect(*_: object) -> LogClient:
        clients.append(broker.client())
        return clients[-1]

    monkeypatch.setattr(workers, "connect_again", connect)
    monkeypatch.setattr(workers, "_idle", {})
    wanted = OffsetRange(ZERO, 15, 40, broker.topic_id("orders").hex())
    for _ in range(3):
        assert bases(list(read_batches(table_options(), wanted))) == [10, 20, 30]
    assert len(clients) == 1
    stopped = read_batches(table_options(), wanted)
    next(stopped)
    stopped.close()  # Its last answer may still be on its way: the next task must not get it.
    assert bases(list(read_batches(table_options(), wanted))) == [10, 20, 30]
    assert len(clients) == 2


def test_what_a_kept_client_knew_of_a_topic_is_not_believed(
    broker: SparkBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_tasks(broker, monkeypatch)
    wanted = OffsetRange(ZERO, 15, 40, broker.topic_id("orders").hex())
    assert bases(list(read_batches(table_options(), wanted))) == [10, 20, 30]
    broker.lives["orders"] = 1  # the same name, another topic
    with pytest.raises(DataLost, match="created again"):
        list(read_batches(table_options(), wanted))


def test_clients_of_few_brokers_are_kept(
    broker: SparkBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_idle", {})
    clients = [broker.client() for _ in range(workers.IDLE_CLIENTS_MAX + 2)]
    for number, client in enumerate(clients):
        workers.leave_client(f"broker{number}:9092", client)
    assert list(workers._idle.values()) == clients[: workers.IDLE_CLIENTS_MAX]
    assert workers.take_client("broker1:9092") is clients[1]


def test_only_processes_of_spark_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    kept: list[bool] = []
    monkeypatch.setattr(workers.gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setattr(workers, "_keep_freed_memory", lambda: kept.append(True))
    monkeypatch.setattr(workers, "_settled", set())
    workers.settle_process()
    assert not frozen
    assert not kept
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    workers.settle_process()
    workers.settle_process()
    assert len(frozen) == len(kept) == 1


def test_a_worker_keeps_the_memory_that_its_tasks_free() -> None:
    """In a process of its own, because there is no way back: no page is asked for twice."""
    script = """
import resource, sys
from goqueue.spark import workers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        held = [b"x" * (1 << 20) for _ in range(16)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
workers._keep_freed_memory()
faults()
print(first, faults())
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    before, after = map(int, run.stdout.split())
    if platform.libc_ver()[0] == "glibc":
        assert after < 1_000 < before


def test_batches_are_fetched_by_a_thread_that_ends_with_the_task(
    broker: SparkBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_tasks(broker, monkeypatch)
    wanted = OffsetRange(ZERO, 15, 40, broker.topic_id("orders").hex())
    assert bases(list(read_batches(table_options(), wanted))) == [10, 20, 30]
    started = read_batches(table_options(), wanted)
    next(started)
    started.close()  # as Spark does after a limit
    assert not [one for one in reading.threading.enumerate() if one.name == reading.THREAD_NAME]


def test_an_error_of_the_thread_is_the_tasks(
    broker: SparkBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_tasks(broker, monkeypatch)
    broker.starts[ZERO] = 50
    wanted = OffsetRange(ZERO, 15, 40, broker.topic_id("orders").hex())
    with pytest.raises(DataLost):
        list(read_batches(table_options(), wanted))
