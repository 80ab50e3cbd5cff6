"""Rows go to the partition they name, to that of their key or to any; in order, in full batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from goqueue.client import Producer
from goqueue.client.settings import ProducerSettings
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidRequest, UnknownPartition
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import TopicPartition
from goqueue.spark.sink import row_batches
from goqueue.spark.sink.row_batches import RowWriter
from tests.unit.client.fake_broker import LOSE_ANSWER, REFUSE, FakeBroker, Fault

NOT_LEADER = 6
UNKNOWN_PRODUCER_ID = 59


def writer_of(
    broker: FakeBroker, topic: str | None = "orders", **settings: Any
) -> tuple[RowWriter, Producer]:
    producer = Producer(broker.cluster(), ProducerSettings(**settings))
    return RowWriter(producer, topic), producer


def write(broker: FakeBroker, *batches: pa.RecordBatch, topic: str | None = "orders") -> None:
    writer, producer = writer_of(broker, topic)
    for batch in batches:
        writer.write(batch)
    writer.push()
    producer.flush()


def table(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def values(broker: FakeBroker, topic: str = "orders") -> dict[int, list[bytes | None]]:
    found = {n: broker.records(TopicPartition(topic, n)) for n in range(broker.topics[topic])}
    return {n: [one.value for one in records] for n, records in found.items() if records}


def test_a_key_goes_where_every_client_sends_it_in_the_order_of_rows() -> None:
    broker = FakeBroker()
    keys = [b"key %d" % (n % 11) for n in range(100)]
    rows = table(key=keys, value=[b"%d" % n for n in range(100)])
    write(broker, rows.slice(0, 33), rows.slice(33))
    expected: dict[int, list[bytes | None]] = {}
    for number, key in enumerate(keys):
        expected.setdefault(partition_of_key(key, 3), []).append(b"%d" % number)
    assert values(broker) == expected


def test_a_row_may_name_its_partition_and_rows_without_a_key_stay_together() -> None:
    broker = FakeBroker()
    keys = [b"a", None, b"a", None]
    write(broker, table(key=keys, partition=[2, 1, None, None], value=[b"0", b"1", b"2", b"3"]))
    home = partition_of_key(b"a", 3)
    found = values(broker)
    assert b"0" in found[2]
    assert b"1" in found[1]
    assert b"2" in found[home]
    assert sorted(one for some in found.values() for one in some if one) == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]
    for wrong in (3, -1, 1 << 40):
        with pytest.raises(UnknownPartition, match=str(wrong)):
            write(broker, table(partition=[0, wrong], value=[b"", b""]))
    alone = FakeBroker()
    write(alone, table(value=[b"%d" % n for n in range(10)]))
    assert [len(some) for some in values(alone).values()] == [10]


def test_rows_may_name_their_topics_unless_one_is_given() -> None:
    broker = FakeBroker(topics={"a": 1, "b": 2, "c": 1})
    rows = table(topic=["b", "a", "b"], value=[b"0", b"1", b"2"], partition=[1, 0, 1])
    write(broker, rows, topic=None)
    assert values(broker, "a") == {0: [b"1"]}
    assert values(broker, "b") == {1: [b"0", b"2"]}
    write(broker, rows.drop_columns(["partition"]), topic="c")
    assert values(broker, "c") == {0: [b"0", b"1", b"2"]}
    for missing in (None, ""):
        with pytest.raises(InvalidRequest, match="no topic"):
            write(broker, table(topic=["a", missing], value=[b"", b""]), topic=None)


def test_batches_are_filled_over_many_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_batches, "BATCH_BYTES_MAX", 1000)
    broker = FakeBroker(topics={"orders": 1})
    rows = table(value=[b"x" * 100] * 3)
    write(broker, *[rows] * 10)
    counts = [len(batch) for batch in broker.logs[TopicPartition("orders", 0)]]
    assert max(counts) <= 1000
    assert len(counts) == 4  # eight in each but the last
    assert len(broker.records(TopicPartition("orders", 0))) == 30
    large = table(value=[b"y" * 5000, b"z"])
    write(broker, large)  # One that is larger goes alone; the broker says if it is too large.
    assert [len(one) for one in values(broker)[0][30:] if one] == [5000, 1]


def test_open_batches_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_batches, "OPEN_BYTES_MAX", 1000)
    broker = FakeBroker()
    writer, producer = writer_of(broker)
    for _ in range(4):
        writer.write(table(value=[b"x" * 100] * 3, partition=[0, 1, 2]))
    producer.flush()
    assert sum(len(some) for some in values(broker).values()) == 9
    writer.push()
    producer.flush()
    assert sum(len(some) for some in values(broker).values()) == 12


@pytest.mark.parametrize(
    "faults",
    [
        [Fault(LOSE_ANSWER)],
        [Fault(REFUSE, NOT_LEADER), None, Fault(LOSE_ANSWER)],
        [Fault(REFUSE, UNKNOWN_PRODUCER_ID)],
    ],
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_batches_that_are_sent_again_are_stored_once(
    monkeypatch: pytest.MonkeyPatch, faults: list[Fault | None], compression: Compression
) -> None:
    monkeypatch.setattr(row_batches, "BATCH_BYTES_MAX", 300)
    broker = FakeBroker()
    broker.faults.extend(faults)
    writer, producer = writer_of(broker, compression=compression)
    sent = [b"%d" % n for n in range(60)]
    rows = table(value=sent, partition=[n % 3 for n in range(60)])
    for start in range(0, 60, 20):
        writer.write(rows.slice(start, 20))
    writer.push()
    producer.flush()
    assert values(broker) == {n: sent[n::3] for n in range(3)}


def test_records_that_were_sent_singly_are_not_overtaken() -> None:
    broker = FakeBroker(topics={"orders": 1})
    writer, producer = writer_of(broker, linger_ms=1000)
    producer.send("orders", b"first")
    writer.write(table(value=[b"second"]))
    writer.push()
    producer.send("orders", b"third")
    producer.flush()
    assert values(broker)[0] == [b"first", b"second", b"third"]
