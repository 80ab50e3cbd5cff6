"""Message sets of clients before 2017, as another library writes them."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model import compression
from goqueue.model.batch import Record, check_batch, decode_batch, encode_batch
from goqueue.model.compression import Compression
from goqueue.model.errors import (
    CorruptBatch,
    GoQueueError,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedFormat,
)
from goqueue.wire.kafka.old_format import convert_old_records
from tests.unit.wire.kafka.requests import old_records

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
quickly = settings(max_examples=300, derandomize=True, deadline=None, database=None)


def convert(data: bytes) -> list[Record]:
    batch = convert_old_records(memoryview(bytearray(data)))
    check_batch(batch)
    return decode_batch(batch)


def message(
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 5,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    size: int | None = None,
    crc: int | None = None,
) -> bytes:
    """One message by hand, with a wrong size or checksum on demand."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    checksum = zlib.crc32(body) if crc is None else crc
    length = len(body) + 4 if size is None else size
    return struct.pack(">qiI", 0, length, checksum) + body


@pytest.mark.parametrize(
    ("magic", "codec"),
    # Format 0 frames lz4 in a broken way that no client uses any more.
    [(1, codec) for codec in CODECS] + [(0, codec) for codec in CODECS[:-1]],
)
def test_every_message_becomes_a_record(magic: int, codec: Compression) -> None:
    records = convert(old_records(b"a", b"", None, b"d" * 500, magic=magic, codec=codec))
    assert [record.value for record in records] == [b"a", b"", None, b"d" * 500]
    assert [record.key for record in records] == [b"key"] * 4
    assert [record.offset for record in records] == [0, 1, 2, 3]
    assert {record.timestamp_ms for record in records} == {1 if magic else -1}


@pytest.mark.parametrize("codec", CODECS)
def test_the_batch_is_compressed_as_the_set_was(codec: Compression) -> None:
    batch = convert_old_records(memoryview(old_records(b"a" * 500, magic=1, codec=codec)))
    assert check_batch(batch).codec is codec


def test_a_batch_of_today_is_passed_on_untouched() -> None:
    batch = memoryview(encode_batch([Record(b"k", b"v", timestamp_ms=1)]))
    assert convert_old_records(batch) is batch


def test_several_compressed_messages_make_one_batch() -> None:
    sets = [old_records(b"a", b"b", magic=1, codec=1), old_records(b"c", magic=1, codec=1)]
    assert [record.value for record in convert(b"".join(sets))] == [b"a", b"b", b"c"]


def test_keys_and_values_may_be_missing() -> None:
    (record,) = convert(message(key=None, value=None))
    assert (record.key, record.value) == (None, None)


@pytest.mark.parametrize("size", [-(1 << 31), -12, -1, 0, 13, 1000])
def test_an_impossible_size_is_damage_and_not_an_endless_loop(size: int) -> None:
    with pytest.raises(CorruptBatch):
        convert(message(size=size, crc=0, key=None, value=None))


def test_a_wrong_checksum_is_damage() -> None:
    with pytest.raises(CorruptBatch, match="checksum"):
        convert(message(crc=1))


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_set_that_was_cut_short_is_damage(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        convert(message()[:-cut])


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="at least one message"):
        convert(b"")


@pytest.mark.parametrize("magic", [3, 127])
def test_a_format_that_never_was_is_refused(magic: int) -> None:
    with pytest.raises(UnsupportedFormat):
        convert(message(magic=magic))


def test_a_compressed_set_inside_a_compressed_set_is_refused() -> None:
    inner = old_records(b"a", magic=1, codec=1)
    with pytest.raises(InvalidRecord, match="plain messages"):
        convert(old_records(b"a", magic=1, codec=1) + _wrapped(inner))


def _wrapped(inner: bytes) -> bytes:
    return message(attributes=1, value=gzip.compress(inner))


def test_a_compressed_message_without_contents_is_refused() -> None:
    with pytest.raises(InvalidRecord):
        convert(message(attributes=1, value=None))


def test_a_time_before_all_times_is_refused() -> None:
    assert convert(message(timestamp=-1))[0].timestamp_ms == -1
    for timestamp in (-2, -(1 << 63)):
        with pytest.raises(InvalidTimestamp):
            convert(message(timestamp=timestamp))


def test_many_small_bombs_are_bounded_like_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression.meter, "bytes_max", 10_000)
    bomb = old_records(b"0" * 4_000, magic=1, codec=1)
    assert len(convert(2 * bomb)) == 2
    with pytest.raises(CorruptBatch, match="unpacks to more than"):
        convert(3 * bomb)


@quickly
@given(data=st.binary(max_size=60))
def test_random_bytes_are_refused_with_an_answer(data: bytes) -> None:
    _expect_answer(data)


@quickly
@given(st.data())
def test_mutated_sets_are_refused_with_an_answer(data: st.DataObject) -> None:
    original = bytearray(old_records(b"a", b"b", magic=1, codec=data.draw(st.sampled_from([0, 1]))))
    for _ in range(data.draw(st.integers(1, 3))):
        original[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
    _expect_answer(bytes(original))


def _expect_answer(data: bytes) -> None:
    is_of_today = len(data) > 16 and data[16] == 2
    try:
        batch = convert_old_records(memoryview(data))
    except GoQueueError:
        return
    if not is_of_today:
        decode_batch(batch)
