"""What aborted transactions wrote is left out, and nothing else."""

from __future__ import annotations

from goqueue.client.aborted import AbortedTransaction, AbortedTransactions
from goqueue.model.batch import CONTROL, TRANSACTIONAL, Record, check_batch, encode_batch

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def written(producer: int, offset: int) -> bytearray:
    return encode_batch(
        [Record(None, b"v")], attributes=TRANSACTIONAL, base_offset=offset, producer_id=producer
    )


def marker(producer: int, offset: int, kind: bytes) -> bytearray:
    return encode_batch(
        [Record(kind, b"")],
        attributes=TRANSACTIONAL | CONTROL,
        base_offset=offset,
        producer_id=producer,
    )


def covered(aborted: AbortedTransactions, *batches: bytearray) -> list[int]:
    return [
        header.base_offset
        for batch in batches
        if aborted.covers(header := check_batch(batch), batch)
    ]


def test_a_producer_is_left_out_until_its_abort_marker() -> None:
    aborted = AbortedTransactions([AbortedTransaction(2, 7), AbortedTransaction(8, 7)])
    assert covered(
        aborted,
        written(7, 0),  # an earlier transaction, committed
        marker(7, 1, COMMIT),
        written(7, 2),
        written(9, 3),
        written(7, 4),
        marker(7, 5, ABORT),
        written(7, 6),
        marker(7, 7, COMMIT),
        written(7, 8),
    ) == [2, 4, 8]


def test_plain_records_are_never_left_out() -> None:
    plain = encode_batch([Record(None, b"v")], base_offset=4, producer_id=7)
    assert covered(AbortedTransactions([AbortedTransaction(0, 7)]), plain) == []
