"""Which batches a partition takes, and what it makes of them."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.batch import (
    CONTROL,
    HAS_DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    check_batch,
    decode_batch,
    encode_batch,
    encode_records,
    read_header,
)
from goqueue.model.compression import Compression, compress
from goqueue.model.errors import (
    CorruptBatch,
    GoQueueError,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    StorageFull,
    UnsupportedCompression,
)
from goqueue.partition import PartitionSettings
from goqueue.partition.rules import FAULTS_MAX
from goqueue.storage.log import LogSettings
from tests.unit.partition.simulated_partition import NOW_MS, SimulatedPartition, batch_of

HOUR_MS = 3_600_000
COMPACTED = PartitionSettings(log=LogSettings(is_compacting=True))
quickly = settings(max_examples=200, derandomize=True, deadline=None, database=None)


def stored(simulated: SimulatedPartition) -> bytes:
    """The one batch in the log, whose checksum must be right."""
    simulated.sync()
    part = simulated.partition.read(0, bytes_max=1 << 20)
    assert part is not None
    data = part.read()
    check_batch(data)
    return data


def with_header(batch: bytearray, at: int, form: str, value: int) -> bytearray:
    """The batch with another value in its header, and a checksum to match."""
    struct.pack_into(form, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


# Size and form


def test_a_batch_at_the_limit_is_taken_and_one_above_is_not() -> None:
    size = len(batch_of("value"))
    assert (
        SimulatedPartition(PartitionSettings(message_bytes_max=size)).append("value").base_offset
        == 0
    )
    with pytest.raises(
        RecordTooLarge, match=f"{size} bytes is over the topic's limit of {size - 1}"
    ):
        SimulatedPartition(PartitionSettings(message_bytes_max=size - 1)).append("value")


def test_a_batch_is_stamped_with_its_offset_and_kept_as_it_is_otherwise() -> None:
    simulated = SimulatedPartition(leader_epoch=3)
    simulated.append("a", "b")
    sent = batch_of("c")
    original = bytes(sent)
    simulated.append_batch(sent)
    simulated.sync()
    part = simulated.partition.read(2, bytes_max=1 << 20)
    assert part is not None
    data = part.read()
    assert read_header(data).base_offset == 2
    assert read_header(data).leader_epoch == 3
    assert data[16:] == original[16:]


@pytest.mark.parametrize(("count", "delta"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_a_batch_must_have_as_many_records_as_offsets(count: int, delta: int) -> None:
    batch = build_batch(b"", record_count=count, last_offset_delta=delta)
    with pytest.raises(InvalidRecord):
        SimulatedPartition().append_batch(batch)


@pytest.mark.parametrize(("at", "form"), [(57, ">i"), (23, ">i")])
def test_negative_counts_are_refused(at: int, form: str) -> None:
    with pytest.raises(InvalidRecord, match="-5"):
        SimulatedPartition().append_batch(with_header(batch_of("a"), at, form, -5))


@pytest.mark.parametrize("bit", [CONTROL, HAS_DELETE_HORIZON])
def test_batches_that_only_a_broker_writes_are_refused(bit: int) -> None:
    with pytest.raises(InvalidRecord, match="written only by the broker"):
        SimulatedPartition().append("a", attributes=bit)


def test_a_batch_of_a_transaction_needs_a_producer() -> None:
    with pytest.raises(InvalidRecord, match="needs a producer id"):
        SimulatedPartition().append("a", attributes=TRANSACTIONAL)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompression, match=f"codec {codec}"):
        SimulatedPartition().append("a", attributes=codec)


@pytest.mark.parametrize(
    ("magic", "error"), [(0, InvalidRecord), (1, InvalidRecord), (3, CorruptBatch)]
)
def test_another_format_is_refused(magic: int, error: type[GoQueueError]) -> None:
    batch = batch_of("a")
    batch[16] = magic
    with pytest.raises(error, match=f"format {magic}"):
        SimulatedPartition().append_batch(batch)


def test_a_batch_that_was_damaged_on_its_way_is_refused() -> None:
    batch = batch_of("a")
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        SimulatedPartition().append_batch(batch)


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_batch_that_was_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(InvalidRecord):
        SimulatedPartition().append_batch(batch_of("a")[:-cut])


def test_two_batches_at_once_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="must have one batch"):
        SimulatedPartition().append_batch(batch_of("a") + batch_of("b"))


@quickly
@given(
    place=st.integers(0, 68),
    value=st.integers(0, 255),
    is_resealed=st.booleans(),
    is_strict=st.booleans(),
)
def test_no_batch_whatever_its_bytes_raises_anything_but_an_answer(
    place: int, value: int, is_resealed: bool, is_strict: bool
) -> None:
    simulated = SimulatedPartition(
        PartitionSettings(
            log=LogSettings(is_compacting=is_strict),
            compression=Compression.LZ4 if is_strict else None,
        )
    )
    batch = batch_of("a")
    batch[place % len(batch)] = value
    if is_resealed:
        with_header(batch, 0, ">b", batch[0] if batch[0] < 128 else 0)
    try:
        simulated.append_batch(batch)
    except GoQueueError:
        assert simulated.partition.end_offset == 0


# Time


@pytest.mark.parametrize(
    ("ahead_ms", "is_taken"), [(0, True), (HOUR_MS, True), (HOUR_MS + 1, False)]
)
def test_a_timestamp_may_lie_an_hour_ahead(ahead_ms: int, is_taken: bool) -> None:
    _expect_taken(SimulatedPartition(), NOW_MS + ahead_ms, is_taken, "in the future")


@pytest.mark.parametrize(("behind_ms", "is_taken"), [(1000, True), (1001, False)])
def test_a_timestamp_may_lie_as_far_back_as_the_topic_allows(
    behind_ms: int, is_taken: bool
) -> None:
    simulated = SimulatedPartition(PartitionSettings(timestamp_before_ms_max=1000))
    _expect_taken(simulated, NOW_MS - behind_ms, is_taken, "in the past")


def _expect_taken(
    simulated: SimulatedPartition, timestamp_ms: int, is_taken: bool, reason: str
) -> None:
    if is_taken:
        assert simulated.append("a", timestamp_ms=timestamp_ms).timestamp_ms == -1
    else:
        with pytest.raises(InvalidTimestamp, match=reason):
            simulated.append("a", timestamp_ms=timestamp_ms)


def test_a_batch_without_timestamps_is_taken_however_strict_the_topic_is() -> None:
    simulated = SimulatedPartition(
        PartitionSettings(timestamp_before_ms_max=0, timestamp_after_ms_max=0)
    )
    assert simulated.append("a", timestamp_ms=-1).base_offset == 0


def test_a_producer_may_not_claim_that_its_times_are_the_brokers() -> None:
    with pytest.raises(InvalidTimestamp, match="append time"):
        SimulatedPartition().append("a", attributes=LOG_APPEND_TIME)


@pytest.mark.parametrize("timestamp_ms", [-1, 1, NOW_MS + 10 * HOUR_MS])
def test_in_a_topic_of_append_times_the_broker_stamps_every_record(timestamp_ms: int) -> None:
    simulated = SimulatedPartition(PartitionSettings(is_append_time=True))
    assert simulated.append("a", "b", timestamp_ms=timestamp_ms).timestamp_ms == NOW_MS
    batch = stored(simulated)
    assert read_header(batch).attributes & LOG_APPEND_TIME
    assert read_header(batch).max_timestamp == NOW_MS
    assert [record.timestamp_ms for record in decode_batch(batch)] == [NOW_MS, NOW_MS]


# Compression


@pytest.mark.parametrize("sent", list(Compression))
@pytest.mark.parametrize("wanted", list(Compression))
def test_a_topic_with_a_codec_of_its_own_keeps_every_batch_in_it(
    sent: Compression, wanted: Compression
) -> None:
    simulated = SimulatedPartition(PartitionSettings(compression=wanted))
    simulated.append(
        "a" * 500, "b" * 500, codec=sent, producer_id=3, producer_epoch=0, base_sequence=0
    )
    batch = stored(simulated)
    header = read_header(batch)
    assert header.codec is wanted
    assert (header.producer_id, header.base_sequence, header.record_count) == (3, 0, 2)
    assert [record.value for record in decode_batch(batch)] == [b"a" * 500, b"b" * 500]
    again = simulated.append(
        "a" * 500, "b" * 500, codec=sent, producer_id=3, producer_epoch=0, base_sequence=0
    )
    assert again.base_offset == 0, "a repetition is one whatever became of the first"


@pytest.mark.parametrize("codec", list(Compression))
def test_a_topic_without_a_codec_keeps_what_was_sent(codec: Compression) -> None:
    simulated = SimulatedPartition()
    simulated.append("a" * 500, codec=codec)
    assert read_header(stored(simulated)).codec is codec


def test_recompression_and_append_times_go_together() -> None:
    simulated = SimulatedPartition(
        PartitionSettings(compression=Compression.ZSTD, is_append_time=True)
    )
    simulated.append("a" * 500, timestamp_ms=5)
    (record,) = decode_batch(stored(simulated))
    assert (record.value, record.timestamp_ms) == (b"a" * 500, NOW_MS)


def test_a_batch_that_cannot_be_unpacked_is_refused() -> None:
    rubbish = build_batch(b"rubbish", record_count=1, attributes=Compression.GZIP)
    with pytest.raises(InvalidRecord, match="cannot be unpacked"):
        SimulatedPartition().append_batch(rubbish)


# Records


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    "settings", [PartitionSettings(), PartitionSettings(is_append_time=True), COMPACTED]
)
def test_more_records_than_bytes_are_refused(
    settings: PartitionSettings, codec: Compression
) -> None:
    packed = compress(codec, bytes(13))
    batch = build_batch(packed, record_count=2**31 - 1, attributes=codec)
    simulated = SimulatedPartition(settings)
    with pytest.raises(InvalidRecord, match="more bytes than its batch has"):
        simulated.append_batch(batch)
    assert simulated.partition.end_offset == 0


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_has_the_time_of_its_newest_record(codec: Compression) -> None:
    records = [(0, Record(b"k", b"v", (), NOW_MS - 9)), (1, Record(b"k", b"v", (), NOW_MS - 5))]
    payload = compress(codec, encode_records(records, base_timestamp=NOW_MS - 9))
    times = {"base_timestamp": NOW_MS - 9, "max_timestamp": NOW_MS + 100 * HOUR_MS}
    simulated = SimulatedPartition()
    simulated.append_batch(build_batch(payload, record_count=2, attributes=codec, **times))
    assert read_header(stored(simulated)).max_timestamp == NOW_MS - 5


def test_the_records_with_bad_times_are_named() -> None:
    times = [NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS, NOW_MS + 3 * HOUR_MS]
    batch = encode_batch([Record(b"k", b"v", (), time) for time in times])
    with pytest.raises(InvalidTimestamp) as refused:
        SimulatedPartition().append_batch(batch)
    assert list(refused.value.faults) == [1, 3]


def test_only_so_many_of_them_are_named() -> None:
    late = Record(b"k", b"v", (), NOW_MS + 2 * HOUR_MS)
    with pytest.raises(InvalidTimestamp) as refused:
        SimulatedPartition().append_batch(encode_batch([late] * (FAULTS_MAX + 5)))
    assert len(refused.value.faults) == FAULTS_MAX


# Keys


@pytest.mark.parametrize("codec", list(Compression))
def test_a_compacted_topic_refuses_records_without_a_key(codec: Compression) -> None:
    with pytest.raises(InvalidRecord, match="each record needs a key"):
        SimulatedPartition(COMPACTED).append("a", key=None, codec=codec)
    assert SimulatedPartition(COMPACTED).append("a", key=b"", codec=codec).base_offset == 0


def test_other_topics_take_records_without_a_key() -> None:
    assert SimulatedPartition().append("a", key=None).base_offset == 0


@pytest.mark.parametrize("is_append_time", [False, True])
def test_a_batch_for_which_there_was_no_room_can_be_tried_again(is_append_time: bool) -> None:
    simulated = SimulatedPartition(PartitionSettings(is_append_time=is_append_time))
    simulated.append("a")
    batch = batch_of("b")
    simulated.disk.fill_after(0)
    with pytest.raises(StorageFull):
        simulated.append_batch(batch)
    simulated.disk.make_room()
    assert simulated.append_batch(batch).base_offset == 1
