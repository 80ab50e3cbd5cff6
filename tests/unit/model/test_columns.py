"""Columns say of every batch what its records say, and refuse the same bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.batch import (
    LOG_APPEND_TIME,
    Record,
    build_batch,
    decode_batch,
    decode_records,
    encode_batch,
    encode_records,
    read_header,
)
from goqueue.model.columns import Columns, decode_columns, unpack_columns
from goqueue.model.errors import CorruptBatch

pytestmark = pytest.mark.usefixtures("each_decoder")

headers = st.lists(
    st.tuples(st.text(max_size=10), st.one_of(st.none(), st.binary(max_size=200))), max_size=3
).map(tuple)
contents = st.one_of(
    st.none(),
    st.binary(max_size=300),
    st.sampled_from([63, 64, 8191, 8192, 20_000]).map(bytes),
)
records = st.lists(
    st.builds(Record, contents, contents, headers, st.integers(0, 1 << 45)),
    min_size=1,
    max_size=12,
)


def columns_of(batch: bytes | bytearray) -> Columns:
    header = read_header(batch)
    return decode_columns(header, memoryview(batch)[61:])


def rows(columns: Columns) -> list[Record]:
    return [columns.record(place) for place in range(len(columns))]


@given(records, st.integers(0, 1 << 40), st.sampled_from([0, LOG_APPEND_TIME]))
def test_columns_hold_the_records_of_their_batch(
    given_records: list[Record], base_offset: int, attributes: int
) -> None:
    batch = encode_batch(given_records, base_offset=base_offset, attributes=attributes)
    columns = columns_of(batch)
    assert rows(columns) == decode_batch(batch)
    assert columns.offsets == range(base_offset, base_offset + len(given_records))
    assert columns.ends[-1] == len(batch) - 61
    assert columns.bytes_at(range(len(columns))) == columns.ends[-1]


@given(records, st.lists(st.integers(0, 20_000), min_size=12, max_size=12, unique=True))
def test_a_compacted_batch_has_gaps(given_records: list[Record], deltas: list[int]) -> None:
    deltas = sorted(deltas)[: len(given_records)]
    payload = encode_records(zip(deltas, given_records, strict=True), base_timestamp=0)
    batch = build_batch(payload, record_count=len(given_records), base_offset=7, base_timestamp=0)
    columns = columns_of(batch)
    assert rows(columns) == decode_batch(batch)
    wanted = [6, *(7 + delta for delta in deltas[::2]), 1 << 40]
    assert [columns.offsets[place] for place in columns.places(wanted)] == wanted[1:-1]


@given(records, st.sampled_from([0, LOG_APPEND_TIME]), st.data())
def test_some_records_can_be_sent_to_another_node(
    given_records: list[Record], attributes: int, data: st.DataObject
) -> None:
    columns = columns_of(encode_batch(given_records, base_offset=7, attributes=attributes))
    last = len(columns) - 1
    places: list[int] | range = data.draw(st.lists(st.integers(0, last), unique=True))
    if data.draw(st.booleans()):
        places = range(data.draw(st.integers(0, last)), len(columns))
    arrived = unpack_columns(columns.pack(places))
    assert rows(arrived) == [columns.record(place) for place in places]
    again = range(len(arrived))
    assert unpack_columns(arrived.pack(again)).values(again) == columns.values(places)


def test_there_may_be_no_records() -> None:
    for columns in (Columns(), columns_of(build_batch(b"", record_count=0, base_offset=5))):
        assert (len(columns), list(columns.offsets), columns.has_headers) == (0, [], False)
        assert columns.keys(columns.places(range(9))) == columns.values([]) == []
        assert columns.bytes_at(range(0)) == 0


def test_offsets_are_found_by_place() -> None:
    batch = encode_batch([Record(None, b"%d" % number) for number in range(10)], base_offset=100)
    columns = columns_of(batch)
    assert columns.places(range(95, 103)) == range(3)
    assert columns.places(range(108, 200)) == range(8, 10)
    assert columns.places([99, 100, 105, 110]) == [0, 5]


@pytest.mark.parametrize("places", [range(2, 8), [2, 3, 4, 5, 6, 7]])
def test_records_are_counted_by_their_bytes(places: range | list[int]) -> None:
    columns = columns_of(encode_batch([Record(None, bytes(100))] * 10))
    size = columns.bytes_at(places) // 6
    assert size > 100
    for too_few in (-1000, -1, 0):
        fitting = columns.fitting(places, too_few)
        assert (len(fitting), columns.bytes_at(fitting)) == (0, 0)
    assert len(columns.fitting(places, size - 1)) == 0
    assert columns.fitting(places, 3 * size) == places[:3]
    assert columns.fitting(places, 4 * size - 1) == places[:3]
    assert columns.fitting(places, 100 * size) == places


@given(records, st.data())
def test_damage_is_refused_where_records_are_refused(
    given_records: list[Record], data: st.DataObject
) -> None:
    batch = encode_batch(given_records)
    bit = data.draw(st.integers(61 * 8, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    assert _outcome(batch) == _outcome_of_records(batch)


@given(st.binary(max_size=80), st.integers(0, 5))
def test_random_bytes_are_refused_where_records_are_refused(payload: bytes, count: int) -> None:
    batch = build_batch(payload, record_count=count)
    assert _outcome(batch) == _outcome_of_records(batch)


def test_a_batch_that_promises_more_records_than_bytes_costs_no_memory() -> None:
    batch = build_batch(b"", record_count=(1 << 31) - 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            columns_of(batch)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def _outcome(batch: bytearray) -> list[Record] | None:
    try:
        return rows(columns_of(batch))
    except CorruptBatch:
        return None


def _outcome_of_records(batch: bytearray) -> list[Record] | None:
    try:
        return list(decode_records(read_header(batch), memoryview(batch)[61:]))
    except CorruptBatch:
        return None
