"""Markers: the control batches that end transactions, byte for byte as Kafka writes them."""

from __future__ import annotations

import pytest

from goqueue.model.batch import (
    CONTROL,
    TRANSACTIONAL,
    Record,
    check_batch,
    decode_batch,
    decode_marker,
    encode_batch,
    encode_marker,
)
from goqueue.model.errors import CorruptBatch


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("coordinator_epoch", [0, 1, 2**31 - 1])
def test_a_marker_says_who_decided_what(is_commit: bool, coordinator_epoch: int) -> None:
    batch = encode_marker(
        is_commit=is_commit,
        producer_id=2**40,
        producer_epoch=7,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=1_700_000_000_000,
    )
    header = check_batch(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 7, -1)
    assert header.record_count == 1
    assert decode_marker(batch) == (is_commit, coordinator_epoch)


def test_the_record_is_the_one_that_clients_know() -> None:
    batch = encode_marker(
        is_commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=258, timestamp_ms=9
    )
    (record,) = decode_batch(batch)
    assert record.key == bytes.fromhex("0000 0001")
    assert record.value == bytes.fromhex("0000 00000102")
    abort = encode_marker(
        is_commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=9
    )
    assert decode_batch(abort)[0].key == bytes(4)


def test_a_later_version_of_a_marker_is_understood() -> None:
    record = Record(bytes.fromhex("0005 0001 ff"), bytes.fromhex("0005 00000003 ff"), (), 1)
    assert decode_marker(encode_batch([record], attributes=CONTROL)) == (True, 3)


@pytest.mark.parametrize(
    "records",
    [
        [Record(None, None, (), 1)],
        [Record(b"\0\0", bytes(6), (), 1)],
        [Record(bytes(4), bytes(5), (), 1)],
        [Record(bytes.fromhex("0000 0002"), bytes(6), (), 1)],
        [Record(bytes(4), bytes(6), (), 1)] * 2,
    ],
)
def test_another_control_batch_is_no_marker(records: list[Record]) -> None:
    with pytest.raises(CorruptBatch):
        decode_marker(encode_batch(records, attributes=CONTROL))


def test_a_batch_can_be_made_for_a_transaction() -> None:
    batch = encode_batch(
        [Record(b"k", b"v", (), 1)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    assert check_batch(batch).attributes == TRANSACTIONAL
