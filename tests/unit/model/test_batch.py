"""The batch format, against two independent implementations and against hostile bytes."""

from __future__ import annotations

import random
import tracemalloc

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as PlainBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as PlainBuilder

from goqueue.model.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Record,
    add_sequence,
    build_batch,
    check_batch,
    decode_batch,
    encode_batch,
    read_header,
    shift_timestamp,
    split_records,
    stamp,
    stamp_append_time,
    unpack_payload,
    varint,
)
from goqueue.model.compression import Compression, compress, decompress
from goqueue.model.errors import (
    CorruptBatch,
    InvalidRecord,
    UnsupportedCompression,
    UnsupportedFormat,
)

pytestmark = pytest.mark.usefixtures("each_decoder")

# kafka-python brings no codecs but gzip; aiokafka unpacks all with the library that we use, but
# frames snappy and lz4 itself.
ORACLES = [
    pytest.param(AioBatch, AioBuilder, list(Compression), id="aiokafka"),
    pytest.param(PlainBatch, PlainBuilder, [Compression.NONE, Compression.GZIP], id="kafka-python"),
]

headers = st.lists(
    st.tuples(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=20))), max_size=3
).map(tuple)
records = st.lists(
    st.builds(
        Record,
        st.one_of(st.none(), st.binary(max_size=30)),
        st.one_of(st.none(), st.binary(max_size=300)),
        headers,
        st.integers(0, 1 << 45),
    ),
    min_size=1,
    max_size=12,
)


def numbered(given_records: list[Record], base_offset: int = 0) -> list[Record]:
    return [
        record._replace(offset=base_offset + number) for number, record in enumerate(given_records)
    ]


@given(records, st.sampled_from(list(Compression)), st.integers(0, 1 << 40))
def test_records_come_back_as_they_were(
    given_records: list[Record], codec: Compression, base_offset: int
) -> None:
    batch = encode_batch(given_records, codec=codec, base_offset=base_offset)
    header = check_batch(batch)
    assert decode_batch(batch) == numbered(given_records, base_offset)
    assert (header.record_count, header.size) == (len(given_records), len(batch))
    assert header.codec is codec
    assert header.next_offset == base_offset + len(given_records)
    assert header.max_timestamp == max(record.timestamp_ms for record in given_records)


@pytest.mark.parametrize(("oracle", "builder", "codecs"), ORACLES)
@settings(max_examples=60, deadline=None)
@given(records, st.data())
def test_other_implementations_read_our_batches(
    oracle: type,
    builder: type,
    codecs: list[Compression],
    given_records: list[Record],
    data: st.DataObject,
) -> None:
    codec = data.draw(st.sampled_from(codecs))
    batch = encode_batch(
        given_records, codec=codec, base_offset=70, producer_id=5, producer_epoch=1, base_sequence=9
    )
    theirs = oracle(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.next_offset) == (70, 70 + len(given_records))
    assert [_from_oracle(record) for record in theirs] == numbered(given_records, 70)


@pytest.mark.parametrize(("oracle", "builder", "codecs"), ORACLES)
@settings(max_examples=60, deadline=None)
@given(records, st.data())
def test_we_read_batches_of_other_implementations(
    oracle: type,
    builder: type,
    codecs: list[Compression],
    given_records: list[Record],
    data: st.DataObject,
) -> None:
    codec = data.draw(st.sampled_from(codecs))
    theirs = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
        batch_size=1 << 20,
    )
    for number, record in enumerate(given_records):
        headers_ = [(name, content) for name, content in record.headers]
        theirs.append(number, record.timestamp_ms, record.key, record.value, headers_)
    batch = bytes(theirs.build())
    header = check_batch(batch)
    assert decode_batch(batch) == numbered(given_records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 9)


@pytest.mark.parametrize("oracle", [AioBatch, PlainBatch], ids=["aiokafka", "kafka-python"])
def test_other_implementations_step_over_an_empty_batch(oracle: type) -> None:
    empty = build_batch(b"", record_count=0, base_offset=40, last_offset_delta=9, leader_epoch=0)
    theirs = oracle(bytes(empty))
    assert theirs.validate_crc()
    assert list(theirs) == []
    assert theirs.next_offset == 50


@pytest.mark.parametrize("oracle", [AioBatch, PlainBatch], ids=["aiokafka", "kafka-python"])
def test_other_implementations_read_a_batch_that_lost_records_and_got_a_horizon(
    oracle: type,
) -> None:
    given_records = [Record(b"k%d" % n, None, (("h", b"x"),), 1000 + n) for n in range(4)]
    batch = encode_batch(given_records, base_offset=7)
    header = read_header(batch)
    kept = [one for one in split_records(header, unpack_payload(batch, header)) if one.key != b"k1"]
    payload = b"".join(shift_timestamp(one, 1000 - 90_000) for one in kept)
    shorter = build_batch(
        payload,
        record_count=3,
        base_offset=7,
        last_offset_delta=3,
        attributes=0x40,
        base_timestamp=90_000,
        max_timestamp=1003,
    )
    expected = [one for one in numbered(given_records, 7) if one.key != b"k1"]
    assert decode_batch(shorter) == expected
    assert [_from_oracle(record) for record in oracle(bytes(shorter))] == expected


def _from_oracle(record: object) -> Record:
    return Record(
        None if record.key is None else bytes(record.key),  # type: ignore[attr-defined]
        None if record.value is None else bytes(record.value),  # type: ignore[attr-defined]
        tuple(
            (name, None if content is None else bytes(content))
            for name, content in record.headers  # type: ignore[attr-defined]
        ),
        record.timestamp,  # type: ignore[attr-defined]
        record.offset,  # type: ignore[attr-defined]
    )


@given(records)
def test_split_records_join_to_what_they_were(given_records: list[Record]) -> None:
    batch = encode_batch(given_records)
    header = read_header(batch)
    parts = list(split_records(header, unpack_payload(batch, header)))
    assert b"".join(part.data for part in parts) == bytes(batch[HEADER_BYTES:])
    assert [part.key for part in parts] == [record.key for record in given_records]
    assert [part.is_tombstone for part in parts] == [
        record.key is not None and record.value is None for record in given_records
    ]
    assert b"".join(shift_timestamp(part, 0) for part in parts) == bytes(batch[HEADER_BYTES:])


@given(st.binary(max_size=200), st.integers(0, 50), st.sampled_from(list(Compression)))
def test_hostile_records_raise_only_corrupt_batch(
    payload: bytes, count: int, codec: Compression
) -> None:
    for content in (payload, compress(codec, payload)):
        batch = build_batch(content, record_count=count, attributes=int(codec))
        _decode_hostile(bytes(batch))


@given(records, st.sampled_from(list(Compression)), st.data())
def test_a_damaged_batch_is_noticed_or_raises_only_corrupt_batch(
    given_records: list[Record], codec: Compression, data: st.DataObject
) -> None:
    batch = encode_batch(given_records, codec=codec)
    bit = data.draw(st.integers(0, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    is_stamped = bit // 8 < 8 or 12 <= bit // 8 < 16  # what a broker writes anew
    if not is_stamped:
        with pytest.raises((CorruptBatch, UnsupportedFormat, InvalidRecord)):
            check_batch(batch)
    if bit // 8 >= HEADER_BYTES:
        _decode_hostile(bytes(batch))


def _decode_hostile(batch: bytes) -> None:
    header = read_header(batch)
    for read in (
        lambda: decode_batch(batch),
        lambda: list(split_records(header, unpack_payload(batch, header))),
    ):
        try:
            read()
        except CorruptBatch:
            pass


def test_a_batch_that_promises_more_records_than_bytes_costs_no_memory() -> None:
    batch = build_batch(b"", record_count=(1 << 31) - 1)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decode_batch(batch)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_short_long_and_foreign_batches_are_refused() -> None:
    batch = encode_batch([Record(b"k", b"v")])
    for length in (0, 11, 60, len(batch) - 1):
        with pytest.raises(CorruptBatch):
            check_batch(batch[:length])
    with pytest.raises(CorruptBatch):
        check_batch(batch + b"x")
    old = bytearray(batch)
    old[16] = 1
    with pytest.raises(UnsupportedFormat):
        check_batch(old)
    with pytest.raises(InvalidRecord):
        check_batch(build_batch(b"", record_count=-1))
    with pytest.raises(InvalidRecord):
        encode_batch([])


def test_stamping_leaves_the_checksum_valid() -> None:
    batch = encode_batch([Record(b"k", b"v", (), 5), Record(b"k", b"w", (), 7)])
    stamp(batch, base_offset=1 << 40, leader_epoch=9)
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    stamp_append_time(batch, 99)
    header = check_batch(batch)
    assert header.attributes & LOG_APPEND_TIME
    assert [record.timestamp_ms for record in decode_batch(batch)] == [99, 99]


def test_sequence_numbers_start_again_at_zero() -> None:
    assert add_sequence((1 << 31) - 1, 1) == 0
    assert add_sequence(5, 3) == 8


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_of_any_size_are_encoded_as_the_format_says(value: int) -> None:
    zigzag = (value << 1) if value >= 0 else ((-value) << 1) - 1
    expected = bytearray()
    while zigzag > 0x7F:
        expected.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    expected.append(zigzag)
    assert varint(value) == bytes(expected)


def test_unknown_codecs_are_named() -> None:
    batch = build_batch(b"", record_count=0, attributes=5)
    with pytest.raises(UnsupportedCompression, match="codec 5"):
        decode_batch(batch)


@pytest.mark.parametrize("codec", [one for one in Compression if one is not Compression.NONE])
def test_a_few_bytes_cannot_unpack_to_more_than_is_allowed(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 << 20))
    with pytest.raises(CorruptBatch, match=r"unpack"):
        decompress(codec, bomb, bytes_max=8 << 20)
    assert len(decompress(codec, bomb, bytes_max=64 << 20)) == 64 << 20


@pytest.mark.parametrize("codec", [one for one in Compression if one is not Compression.NONE])
@given(st.binary(max_size=300), st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_damaged_compressed_bytes_raise_only_corrupt_batch(
    codec: Compression, data: bytes, seed: int
) -> None:
    chance = random.Random(seed)
    packed = bytearray(compress(codec, data * 3))
    for _ in range(chance.randint(1, 4)):
        packed[chance.randrange(len(packed))] = chance.randrange(256)
    for hostile in (bytes(packed), bytes(packed[: chance.randrange(len(packed))]), data):
        try:
            decompress(codec, hostile, bytes_max=1 << 20)
        except CorruptBatch:
            pass


def test_snappy_comes_framed_and_bare() -> None:
    data = b"some text " * 10_000
    assert bytes(decompress(Compression.SNAPPY, compress(Compression.SNAPPY, data))) == data
    bare = bytes(cramjam.snappy.compress_raw(data))
    assert bytes(decompress(Compression.SNAPPY, bare)) == data
