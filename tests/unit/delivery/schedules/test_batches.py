"""Batches that are written at once are those that records one by one would make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from goqueue.delivery.schedules.records import (
    ScheduledMessage,
    end_batch,
    end_move_record,
    end_record,
    message_batch,
    message_record,
    number_key,
)
from goqueue.delivery.schedules.releases import ScheduleIds, released_records
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Record, encode_batch, encode_records
from goqueue.model.decode_reference import read_varint
from tests.unit.delivery.schedules.test_records import MESSAGES

NOW_MS = 1_700_000_000_000
IDS = ScheduleIds(b"t" * 16)


@given(some.integers(0, 1 << 47), some.lists(MESSAGES, min_size=1, max_size=80))
def test_messages(first: int, messages: list[ScheduledMessage]) -> None:
    batch, starts = message_batch(first, messages, NOW_MS)
    records = [message_record(first + i, one, NOW_MS) for i, one in enumerate(messages)]
    assert batch == encode_batch(records)
    for number, start in enumerate(starts, first):
        length, body = read_varint(bytes(batch), start)
        assert number_key(number) in batch[body : body + length]


@pytest.mark.parametrize("is_released", [True, False])
@pytest.mark.parametrize("count", [1, 64, 65, 2000])
def test_ends(count: int, is_released: bool) -> None:
    numbers = [5 + 7 * one for one in range(count)]
    moved = dict.fromkeys(numbers[::3], 1)
    records = [end_record(one, NOW_MS, is_released=is_released) for one in numbers]
    assert end_batch(numbers, {}, NOW_MS, is_released=is_released) == encode_batch(records)
    records += [end_move_record(one, NOW_MS) for one in numbers if one in moved]
    assert end_batch(numbers, moved, NOW_MS, is_released=is_released) == encode_batch(records)


@given(some.lists(MESSAGES, min_size=1, max_size=80))
def test_released_messages(messages: list[ScheduledMessage]) -> None:
    places = [(3, number) for number in range(len(messages))]
    found = released_records(
        [(one.key, one.value, one.headers) for one in messages], IDS.write_many(places)
    )
    records = [
        Record(
            one.key,
            one.value,
            (*one.headers, (SCHEDULE_ID_HEADER, IDS.write(*place).encode())),
            NOW_MS,
        )
        for one, place in zip(messages, places, strict=True)
    ]
    assert found == encode_records(enumerate(records), base_timestamp=NOW_MS)
