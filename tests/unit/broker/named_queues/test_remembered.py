"""What the nodes that own and make named queues remember of calls for a while."""

from __future__ import annotations

import pytest

from goqueue.broker.named_queues.attempts import ATTEMPT_MS, ATTEMPTS_MAX, BYTES_MAX, Attempts
from goqueue.broker.named_queues.named_queues import NamedQueue
from goqueue.broker.named_queues.purging import Purges
from goqueue.broker.named_queues.resting_names import NAMES_MAX, RestingNames
from goqueue.broker.queues.records import Received, ReceivedRun
from goqueue.delivery.leases import Leases, Receipts, Unacked
from goqueue.model.batch import HEADER_BYTES, Record, encode_batch, read_header
from goqueue.model.columns import decode_columns
from goqueue.model.errors import PurgeInProgress, QueueDeletedRecently

REST_MS = 60_000


def received(*values: bytes) -> Received:
    """The last message of a batch, under a lease that covers an earlier one too."""
    batch = encode_batch([Record(None, value) for value in values], base_offset=70)
    columns = decode_columns(read_header(batch), batch[HEADER_BYTES:])
    offsets = range(69, 70 + len(values))
    lease, _ = Leases(Receipts(1), Unacked()).grant(
        "anna",
        3,
        offsets,
        bytes([1]) * len(offsets),
        bytes(len(offsets)),
        now_ms=4000,
        until_ms=5000,
    )
    found = Received("orders")
    found.add(ReceivedRun(columns, [len(values) - 1], lease, len(offsets) - 1))
    return found


def queue(name: str) -> NamedQueue:
    return NamedQueue(name.encode(), name, name, name, 0, 0)


def test_attempts_are_bounded_and_forgotten() -> None:
    attempts, one = Attempts(), received(b"a", b"b")
    for number in range(ATTEMPTS_MAX + 1):
        attempts.keep(b"q", str(number), one, 0)
    assert attempts.find(b"q", "0", 0) is None
    found = attempts.find(b"q", str(ATTEMPTS_MAX), ATTEMPT_MS - 1)
    assert found is not None
    assert found.receipts == one.receipts == [message.delivery.receipt for message in one]
    assert list(found.received) == list(one)
    assert attempts.find(b"q", str(ATTEMPTS_MAX), ATTEMPT_MS) is None


def test_attempts_take_so_much_memory_and_no_more() -> None:
    """Only what was received counts, and is kept of its batch."""
    attempts = Attempts()
    large = received(b"not received" * (BYTES_MAX // 12), b"x" * (BYTES_MAX // 2 - 1000))
    for name in ("a", "b", "c"):
        attempts.keep(b"q", name, large, 0)
    is_gone = [attempts.find(b"q", name, 0) is None for name in ("a", "b", "c")]
    assert is_gone == [True, False, False]
    attempts.keep(b"q", "c", received(b"x" * BYTES_MAX), 0)
    assert attempts.find(b"q", "c", 0) is None
    assert attempts.find(b"q", "b", 0) is not None
    attempts.forget(b"q", "b")
    attempts.keep(b"q", "d", received(b"x" * (BYTES_MAX - 1000)), 0)
    assert attempts.find(b"q", "d", 0) is not None
    attempts.keep(b"q", "d", Received("orders"), 0)
    assert attempts.find(b"q", "d", 0) is None


def test_a_purge_that_failed_may_be_tried_again() -> None:
    purges = Purges()
    purges.begin(queue("q"), 0, REST_MS)
    with pytest.raises(PurgeInProgress):
        purges.begin(queue("q"), 59_999, REST_MS)
    purges.undo(queue("q"))
    purges.begin(queue("q"), 59_999, REST_MS)
    purges.begin(queue("other"), 59_999, REST_MS)


def test_resting_names_are_bounded() -> None:
    names = RestingNames()
    for number in range(NAMES_MAX + 3):
        names.add(str(number), number, REST_MS)
    assert len(names) == NAMES_MAX
    names.check("2", NAMES_MAX)
    with pytest.raises(QueueDeletedRecently):
        names.check("3", NAMES_MAX)
    names.check("3", NAMES_MAX + REST_MS)
