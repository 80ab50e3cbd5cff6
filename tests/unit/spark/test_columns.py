"""Columns of Arrow hold what the records hold, whatever the batches look like."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from goqueue.client import RawBatch
from goqueue.model import decode_reference, decode_vectors
from goqueue.model.batch import (
    LOG_APPEND_TIME,
    Record,
    build_batch,
    decode_batch,
    encode_batch,
    encode_records,
    read_header,
    stamp_append_time,
)
from goqueue.model.compression import Compression, compress
from goqueue.model.errors import CorruptBatch
from goqueue.model.names import TopicPartition
from goqueue.spark import columns
from goqueue.spark.columns import header_batches, record_batches
from goqueue.spark.options import ReadOptions
from goqueue.spark.planning import OffsetRange, split
from goqueue.spark.schema import arrow_schema, table_schema

PARTITION = TopicPartition("orders", 3)
EVERYTHING = OffsetRange(PARTITION, 0, 1 << 62)
ALL_COLUMNS = table_schema(has_headers=True, view="records")

_bytes = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=12), _bytes), max_size=4).map(tuple)
_records = st.builds(
    Record, _bytes, _bytes, _headers, st.integers(0, 1 << 42) | st.integers(1000, 1010)
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytearray]:
    """Batches as they stand in a log: all codecs, gaps inside and between, times of either kind."""
    batches, offset = [], draw(st.integers(0, 1 << 40))
    for records in draw(st.lists(st.lists(_records, min_size=1, max_size=12), max_size=6)):
        codec = draw(st.sampled_from(Compression))
        kept = sorted(draw(st.sets(st.sampled_from(range(len(records))))))
        has_gaps = draw(st.booleans())
        numbered = [(delta, records[delta]) for delta in kept] if has_gaps else None
        batch = _batch(records, numbered, codec, offset)
        if draw(st.booleans()):
            stamp_append_time(batch, draw(st.integers(0, 1 << 42)))
        batches.append(batch)
        offset += len(records) + draw(st.integers(0, 5))
    return batches


def _batch(
    records: list[Record],
    numbered: list[tuple[int, Record]] | None,
    codec: Compression,
    base_offset: int,
) -> bytearray:
    if numbered is None:
        return encode_batch(records, codec=codec, base_offset=base_offset)
    payload = encode_records(numbered, base_timestamp=7)
    return build_batch(
        compress(codec, payload) if codec is not Compression.NONE else payload,
        record_count=len(numbered),
        base_offset=base_offset,
        last_offset_delta=len(records) - 1,
        attributes=int(codec),
        base_timestamp=7,
        max_timestamp=max([record.timestamp_ms for _, record in numbered], default=7),
    )


def raw(batches: list[bytearray]) -> list[RawBatch]:
    return [
        RawBatch(PARTITION.topic, PARTITION.partition, read_header(one), memoryview(one))
        for one in batches
    ]


def rows_of(
    batches: list[bytearray], wanted: OffsetRange = EVERYTHING, schema: StructType = ALL_COLUMNS
) -> list[dict[str, object]]:
    found = []
    for one in record_batches(raw(batches), wanted, arrow_schema(schema, view="records")):
        one.validate(full=True)
        found += one.to_pylist()
    return found


def expected(batches: list[bytearray], wanted: OffsetRange = EVERYTHING) -> list[dict[str, object]]:
    """The same rows by way of records."""
    rows = []
    for batch in batches:
        is_append_time = int.from_bytes(batch[21:23], "big") & LOG_APPEND_TIME
        rows += [
            {
                "key": record.key,
                "value": record.value,
                "topic": "orders",
                "partition": 3,
                "offset": record.offset,
                "timestamp": datetime(1970, 1, 1, tzinfo=UTC)
                + timedelta(milliseconds=record.timestamp_ms),
                "timestampType": 1 if is_append_time else 0,
                "headers": [{"key": name, "value": value} for name, value in record.headers]
                or None,
            }
            for record in decode_batch(batch)
            if wanted.start <= record.offset < wanted.end
        ]
    return rows


@settings(max_examples=200, deadline=None)
@given(logs())
def test_rows_are_the_records(batches: list[bytearray]) -> None:
    assert rows_of(batches) == expected(batches)


@settings(max_examples=100, deadline=None)
@given(logs(), st.data())
def test_a_range_may_cut_batches_at_both_ends(
    batches: list[bytearray], data: st.DataObject
) -> None:
    offsets = [row["offset"] for row in expected(batches)] or [0]
    start = data.draw(st.integers(min(offsets) - 2, max(offsets) + 2))
    wanted = OffsetRange(PARTITION, start, data.draw(st.integers(start, max(offsets) + 2)))
    assert rows_of(batches, wanted) == expected(batches, wanted)


@pytest.mark.parametrize("decoder", [decode_reference, decode_vectors])
@settings(max_examples=50, deadline=None)
@given(logs())
def test_without_the_compiled_decoder_rows_are_the_same(
    decoder: ModuleType, batches: list[bytearray]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "decoder", decoder)
        patch.setattr(decode_vectors, "RECORDS_MIN", 1)
        assert rows_of(batches) == expected(batches)


def test_chunks_are_cut_by_bytes_and_by_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "CHUNK_RECORDS_MAX", 25)
    small = [encode_batch([Record(None, b"x")] * 10, base_offset=10 * at) for at in range(5)]
    large = [encode_batch([Record(None, b"x" * 4_000)], base_offset=50 + at) for at in range(3)]
    schema = arrow_schema(ALL_COLUMNS, view="records")
    chunks = list(record_batches(raw(small + large), EVERYTHING, schema, chunk_bytes=5_000))
    assert [len(chunk) for chunk in chunks] == [20, 20, 11, 1, 1]


def test_only_the_columns_that_were_asked_for_are_made() -> None:
    schema = StructType([ALL_COLUMNS["offset"], ALL_COLUMNS["value"]])
    batch = encode_batch([Record(b"k", b"v", (("h", b"1"),))], base_offset=5)
    assert rows_of([batch], schema=schema) == [{"offset": 5, "value": b"v"}]


def test_no_column_at_all_still_counts() -> None:
    batch = encode_batch([Record(b"k", b"v")] * 7)
    (found,) = record_batches(raw([batch]), replace(EVERYTHING, start=2), pa.schema([]))
    assert (found.num_rows, found.num_columns) == (5, 0)


@pytest.mark.parametrize("view", ["records", "batches"])
def test_the_schema_is_what_spark_makes_of_its_own(view: str) -> None:
    schema = table_schema(has_headers=True, view=view)
    assert arrow_schema(schema, view=view).equals(to_arrow_schema(schema, timezone="UTC"))


def test_times_beyond_those_of_spark_are_its_last() -> None:
    records = [Record(None, b"", (), (1 << 62)), Record(None, b"", (), 5)]
    schema = arrow_schema(StructType([ALL_COLUMNS["timestamp"]]), view="records")
    (found,) = record_batches(raw([encode_batch(records)]), EVERYTHING, schema)
    micros = found.column(0).cast(pa.int64()).to_pylist()
    assert micros == [((1 << 63) - 1) // 1000 * 1000, 5000]


def test_damage_is_refused() -> None:
    batch = build_batch(b"\xff" * 40, record_count=3)
    with pytest.raises(CorruptBatch):
        rows_of([batch])


def test_a_batch_without_records_is_passed_over() -> None:
    empty = build_batch(b"", record_count=0, last_offset_delta=4, base_offset=0)
    full = encode_batch([Record(None, b"x")], base_offset=5)
    assert [row["offset"] for row in rows_of([empty, full])] == [5]


# One row for each batch


def header_rows(batches: list[bytearray], wanted: OffsetRange) -> list[dict[str, object]]:
    schema = arrow_schema(table_schema(has_headers=False, view="batches"), view="batches")
    inside = [one for one in raw(batches) if _overlaps(one, wanted)]
    return [row for one in header_batches(inside, wanted, schema) for row in one.to_pylist()]


def _overlaps(batch: RawBatch, wanted: OffsetRange) -> bool:
    """What a broker sends for a range: whole batches."""
    first = int.from_bytes(batch.data[:8], "big", signed=True)
    last = first + int.from_bytes(batch.data[23:27], "big")
    return first < wanted.end and last >= wanted.start


@pytest.mark.parametrize("tasks", [1, 2, 7, 50])
@pytest.mark.parametrize("start", [0, 3, 10])
def test_each_batch_is_in_one_task(start: int, tasks: int) -> None:
    log = [encode_batch([Record(None, b"x")] * 10, base_offset=10 * at) for at in range(5)]
    whole = OffsetRange(PARTITION, start, 45)
    pieces = split([whole], {}, ReadOptions("x:1", tasks_min=tasks))
    rows = [row for piece in pieces for row in header_rows(log, piece)]
    first = start // 10
    assert [row["firstOffset"] for row in rows] == [10 * at for at in range(first, 5)]


def test_a_batch_says_what_its_header_says() -> None:
    batch = encode_batch(
        [Record(None, b"x", (), 1000), Record(None, b"y", (), 2500)],
        codec=Compression.ZSTD,
        base_offset=40,
        leader_epoch=2,
        producer_id=9,
        producer_epoch=1,
        base_sequence=6,
        is_transactional=True,
    )
    (row,) = header_rows([batch], EVERYTHING)
    assert row == {
        "topic": "orders",
        "partition": 3,
        "firstOffset": 40,
        "lastOffset": 41,
        "records": 2,
        "bytes": len(batch),
        "codec": "zstd",
        "firstTimestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "lastTimestamp": datetime(1970, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC),
        "producerId": 9,
        "producerEpoch": 1,
        "firstSequence": 6,
        "leaderEpoch": 2,
        "isTransactional": True,
    }
