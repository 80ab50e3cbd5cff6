"""Reading from given offsets to given ends."""

from __future__ import annotations

import pytest

from goqueue.client import Position, Reader, ReaderSettings, start_reading
from goqueue.model.batch import CONTROL, Record, encode_batch
from goqueue.model.compression import Compression
from goqueue.model.errors import CorruptBatch, OffsetOutOfRange, RecordTooLarge
from goqueue.model.names import TopicPartition
from tests.unit.client.fake_broker import FakeBroker

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch(*values: bytes, codec: Compression = Compression.NONE) -> bytearray:
    return encode_batch([Record(b"k", value, timestamp_ms=9) for value in values], codec=codec)


@pytest.fixture
def broker() -> FakeBroker:
    """Partition 0 holds a to e in two batches; partition 1 holds x."""
    broker = FakeBroker()
    broker.append(ZERO, batch(b"a", b"b", b"c"))
    broker.append(ZERO, batch(b"d", b"e", codec=Compression.ZSTD))
    broker.append(ONE, batch(b"x"))
    return broker


def read(broker: FakeBroker, start: int, end: int) -> list[bytes | None]:
    reader = Reader(broker.cluster(), {ZERO: start}, ends={ZERO: end})
    return [record.value for record in reader.records()]


def test_records_are_read_from_one_end_to_the_other(broker: FakeBroker) -> None:
    reader = start_reading(
        broker.cluster(), [ZERO, ONE], Position.earliest(), until=Position.latest()
    )
    found = [(record.partition, record.offset, record.value) for record in reader.records()]
    assert sorted(found) == [
        *((0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c"), (0, 3, b"d"), (0, 4, b"e")),
        (1, 0, b"x"),
    ]
    assert reader.positions == {ZERO: 5, ONE: 1}


def test_a_range_may_begin_and_end_inside_a_batch(broker: FakeBroker) -> None:
    assert read(broker, 1, 4) == [b"b", b"c", b"d"]
    assert read(broker, 2, 2) == []


def test_raw_batches_are_whole(broker: FakeBroker) -> None:
    reader = Reader(broker.cluster(), {ZERO: 1}, ends={ZERO: 5})
    found = list(reader.fetch_batches())
    assert [(each.topic, each.partition) for each in found] == [("orders", 0)] * 2
    assert [bytes(each.data) for each in found] == [bytes(each) for each in broker.logs[ZERO]]


def test_a_poll_without_news_is_empty(broker: FakeBroker) -> None:
    reader = Reader(broker.cluster(), {ZERO: 5})
    assert list(reader.poll()) == []
    broker.append(ZERO, batch(b"f"))
    assert [record.value for record in reader.poll()] == [b"f"]
    assert not reader.is_at_end


def test_an_offset_that_is_gone_is_named_with_what_is_there(broker: FakeBroker) -> None:
    with pytest.raises(OffsetOutOfRange, match=r"Offset 9 of orders/0.*0 to 5"):
        read(broker, 9, 10)


@pytest.mark.parametrize(("where", "first"), [("earliest", b"a"), ("latest", b"f")])
def test_a_reader_may_go_on_at_either_end(broker: FakeBroker, where: str, first: bytes) -> None:
    settings = ReaderSettings(out_of_range=where)
    reader = Reader(broker.cluster(), {ZERO: 9}, settings=settings)
    assert list(reader.poll()) == []
    broker.append(ZERO, batch(b"f"))
    assert next(reader.records()).value == first


def test_a_flipped_bit_is_not_read_over(broker: FakeBroker) -> None:
    broker.logs[ZERO][1][-1] ^= 1
    reader = Reader(broker.cluster(), {ZERO: 0}, ends={ZERO: 5})
    records = reader.records()
    assert [next(records).value for _ in range(3)] == [b"a", b"b", b"c"]
    with pytest.raises(CorruptBatch, match="offset 3 of orders/0"):
        next(records)


def test_a_batch_cut_short_is_asked_for_again_or_named(broker: FakeBroker) -> None:
    reader = Reader(broker.cluster(), {ZERO: 0})
    first, second = broker.logs[ZERO]
    whole = list(reader._batches(ZERO, bytes(first + second[:-1])))
    assert [header.record_count for header, _ in whole] == [3]
    with pytest.raises(RecordTooLarge):
        list(reader._batches(ZERO, bytes(first[:-1])))


def test_control_batches_are_passed_over(broker: FakeBroker) -> None:
    marker = encode_batch([Record(b"\0\0\0\1", b"", timestamp_ms=1)], attributes=CONTROL)
    broker.append(ZERO, marker)
    broker.append(ZERO, batch(b"f"))
    assert read(broker, 4, 7) == [b"e", b"f"]
