"""Records of the internal topic: written and read back, damage told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from goqueue.delivery.schedules.records import (
    ProducerBatch,
    ScheduledMessage,
    end_move_record,
    end_record,
    is_release,
    message_record,
    move_record,
    number_key,
    read_key,
    read_message,
    read_move,
)
from goqueue.model.errors import CorruptBatch, UnsupportedVersion

NUMBERS = some.integers(0, (1 << 48) - 1)
BYTES = some.none() | some.binary(max_size=30)
MESSAGES = some.builds(
    ScheduledMessage,
    due_ms=some.integers(0, 1 << 50),
    topic_id=some.binary(min_size=16, max_size=16),
    topic=some.text(max_size=20),
    partition=some.integers(-1, 10_000),
    key=BYTES,
    value=BYTES,
    headers=some.lists(some.tuples(some.text(max_size=9), BYTES), max_size=3).map(tuple),
    timestamp_ms=some.integers(-1, 1 << 50),
    origin=some.none()
    | some.builds(ProducerBatch, NUMBERS, some.integers(0, 9), some.integers(0, 99)),
)


@given(NUMBERS, MESSAGES)
def test_a_message_is_read_back_as_it_was(number: int, message: ScheduledMessage) -> None:
    record = message_record(number, message, 5)
    assert read_key(record.key) == (number, False)
    assert record.value is not None
    assert read_message(record.value) == message


@given(NUMBERS, some.integers(0, 1 << 60))
def test_a_new_due_time_is_read_back_as_it_was(number: int, due_ms: int) -> None:
    record = move_record(number, due_ms, 5)
    assert read_key(record.key) == (number, True)
    assert record.value is not None
    assert read_move(record.value) == due_ms


@pytest.mark.parametrize("is_released", [True, False])
def test_an_end_says_how_it_came(is_released: bool) -> None:
    record = end_record(7, 5, is_released=is_released)
    assert (record.key, record.value) == (number_key(7), None)
    assert is_release(record) is is_released


def test_a_message_and_its_new_due_time_have_keys_of_their_own() -> None:
    assert end_record(7, 5, is_released=True).key != end_move_record(7, 5).key
    assert end_move_record(7, 5).key == move_record(7, 1, 5).key


@given(some.binary(max_size=60))
def test_random_bytes_are_refused_as_damage_or_read(data: bytes) -> None:
    read_key(data)
    for read in (read_message, read_move):
        for content in (data, b"\x01" + data):
            try:
                read(content)
            except (CorruptBatch, UnsupportedVersion):
                pass


@pytest.mark.parametrize("key", [None, b"", b"1234567", b"12345678x", b"12345678rr"])
def test_a_key_of_another_form_is_passed_over(key: bytes | None) -> None:
    assert read_key(key) is None
