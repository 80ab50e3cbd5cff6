"""When a batch is full, and when it is due."""

from __future__ import annotations

from goqueue.client.batching import Accumulator, Batch, ProducerSequence, record_size
from goqueue.client.settings import ProducerSettings
from goqueue.model.batch import Record, check_batch, decode_batch
from goqueue.model.names import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def record(size: int = 10) -> Record:
    return Record(b"", b"x" * size, timestamp_ms=1)


def test_records_wait_together_until_the_linger_is_over() -> None:
    accumulator = Accumulator(ProducerSettings(linger_ms=100))
    batch, index, ready = accumulator.add(ONE, record(), now=0.0)
    assert (index, ready) == (0, [])
    assert accumulator.add(ONE, record(), now=0.05) == (batch, 1, [])
    assert accumulator.take_due(now=0.099) == []
    assert accumulator.take_due(now=0.1) == [batch]
    assert accumulator.take_all() == []


def test_a_later_record_carries_away_what_is_due_elsewhere() -> None:
    accumulator = Accumulator(ProducerSettings(linger_ms=100))
    old, _, _ = accumulator.add(ONE, record(), now=0.0)
    _, _, ready = accumulator.add(TWO, record(), now=0.2)
    assert ready == [old]


def test_a_batch_goes_when_it_has_enough_records() -> None:
    accumulator = Accumulator(ProducerSettings(linger_ms=10_000, batch_records_max=3))
    sent = [accumulator.add(ONE, record(), now=0.0)[2] for _ in range(7)]
    assert [[len(batch.records) for batch in ready] for ready in sent] == [
        *([], [], [3]),
        *([], [], [3]),
        [],
    ]


def test_a_batch_goes_before_it_grows_too_large() -> None:
    size = record_size(record(100))
    accumulator = Accumulator(ProducerSettings(linger_ms=10_000, batch_bytes_max=3 * size - 1))
    first, _, _ = accumulator.add(ONE, record(100), now=0.0)
    accumulator.add(ONE, record(100), now=0.0)
    second, index, ready = accumulator.add(ONE, record(100), now=0.0)
    assert ready == [first]
    assert (len(first.records), second.records, index) == (2, [record(100)], 0)


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    accumulator = Accumulator(ProducerSettings(linger_ms=10_000, batch_bytes_max=100))
    small, _, _ = accumulator.add(ONE, record(1), now=0.0)
    large, _, ready = accumulator.add(ONE, record(1000), now=0.0)
    assert ready == [small, large]


def test_an_estimate_is_never_too_small() -> None:
    one = Record(b"k" * 70, b"v" * 300, (("näme", b"x" * 200), ("y", None)), timestamp_ms=5)
    batch = Batch(ONE, 0.0)
    batch.add(one)
    assert len(batch.encode(ProducerSettings(), None)) - 61 <= batch.size


def test_numbers_are_given_once_and_go_on_in_the_next_batch() -> None:
    lane, settings = ProducerSequence(producer_id=7, producer_epoch=1), ProducerSettings()
    first, second = Batch(ONE, 0.0), Batch(ONE, 0.0)
    for batch in (first, second):
        batch.add(record())
        batch.add(record())
    assert check_batch(first.encode(settings, lane)).base_sequence == 0
    assert check_batch(first.encode(settings, lane)).base_sequence == 0
    header = check_batch(second.encode(settings, lane))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 2)
    assert [each.value for each in decode_batch(second.encode(settings, lane))] == [b"x" * 10] * 2


def test_a_sequence_starts_again_after_31_bits() -> None:
    lane = ProducerSequence(1, 0, sequence_next=0x7FFF_FFFF)
    assert lane.take(2) == 0x7FFF_FFFF
    assert lane.sequence_next == 1
