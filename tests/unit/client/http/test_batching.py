"""When a batch goes, and how much may wait."""

from __future__ import annotations

import pytest

from goqueue.client.http.batching import BODY_BYTES_MAX, Batcher, ProducerSettings, split
from goqueue.model.errors import InvalidRequest


def batcher(**settings: int) -> Batcher[int]:
    return Batcher(ProducerSettings(**settings))


def taken(batches: Batcher[int], now_ms: float) -> list[list[bytes]]:
    found = []
    while (batch := batches.take(now_ms)) is not None:
        found.append(batch.parts)
        batches.done(batch)
    return found


def test_a_batch_goes_when_it_has_lingered() -> None:
    batches = batcher(linger_ms=5)
    batches.add("a", b"1", 1, now_ms=100)
    batches.add("a", b"2", 2, now_ms=104)
    assert batches.take(104) is None
    assert batches.next_due_ms() == 105
    assert taken(batches, 105) == [[b"1", b"2"]]
    assert batches.next_due_ms() is None
    assert (batches.message_count, batches.byte_count) == (0, 0)


def test_a_batch_goes_when_it_is_full_by_count_or_bytes() -> None:
    by_count = batcher(batch_messages_max=2)
    for number in range(3):
        by_count.add("a", b"x", number, now_ms=0)
    assert taken(by_count, 0) == [[b"x", b"x"]]
    by_bytes = batcher(batch_bytes_max=10)
    for number in range(3):
        by_bytes.add("a", b"12345", number, now_ms=0)
    assert taken(by_bytes, 0) == [[b"12345"], [b"12345"]]


def test_one_topic_keeps_its_order_while_others_go() -> None:
    batches = batcher(batch_messages_max=1, in_flight_max=2)
    for topic, number in (("a", 1), ("a", 2), ("b", 3), ("c", 4)):
        batches.add(topic, b"%d" % number, number, now_ms=0)
    first, second = batches.take(0), batches.take(0)
    assert first is not None
    assert second is not None
    assert [first.futures, second.futures] == [[1], [3]]
    assert batches.take(0) is None  # two are under way
    assert batches.next_due_ms() is None
    batches.done(second)
    third = batches.take(0)
    assert third is not None
    assert third.futures == [4]
    batches.done(first)
    last = batches.take(0)
    assert last is not None
    assert last.futures == [2]


def test_a_flush_lets_nothing_linger() -> None:
    batches = batcher(linger_ms=10_000)
    batches.flush()
    batches.add("a", b"1", 1, now_ms=0)
    assert batches.take(0) is None  # there was nothing to flush then
    batches.flush()
    assert taken(batches, 0) == [[b"1"]]


def test_who_is_faster_than_the_broker_has_to_wait() -> None:
    batches = batcher(buffer_messages_max=2, buffer_bytes_max=10)
    assert batches.has_room(100)  # alone, anything goes
    batches.add("a", b"12345678", 1, now_ms=0)
    assert not batches.has_room(3)
    assert batches.has_room(2)
    batches.add("a", b"1", 2, now_ms=0)
    assert not batches.has_room(1)


def test_lists_are_split_where_a_broker_would_refuse_them() -> None:
    assert [len(chunk) for chunk in split([b"x"] * 2500)] == [1000, 1000, 500]
    half = b"x" * (BODY_BYTES_MAX // 2)
    assert [len(chunk) for chunk in split([half, half, half])] == [1, 1, 1]
    assert list(split([])) == []


@pytest.mark.parametrize(
    "settings", [{"batch_messages_max": 1001}, {"linger_ms": -1}, {"in_flight_max": 0}]
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        ProducerSettings(**settings)
