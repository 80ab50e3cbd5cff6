"""Receipts: tokens that prove which message a consumer was given, in which delivery.

A receipt is opaque to its holder. Its head names the queue, the partition and the lease, and the
first offset and message count of the lease; its tail identifies the message in it. So a receipt
identifies its message by itself, even when its lease has ended or another node owns the queue.

A message authentication code, keyed with a secret of the queue that is stored in the delivery
journal, prevents forgery. A lease of contiguous offsets that are all delivered for the first time
has one code, in its head. In any other lease every tail names its offset and has its own code,
because nothing else defines which offsets belong to the lease.

Creating and checking receipts costs time per message, so a lease encodes its head once, tails come
from a table, and a receipt of a live lease is never decoded: its head is looked up as it is.
"""

from __future__ import annotations

from binascii import Error as BinasciiError
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from goqueue.delivery.settings import RECEIVE_MESSAGES_MAX
from goqueue.model.errors import InvalidReceipt

SECRET_BYTES = 16
SERIAL_MAX = (1 << 48) - 1

_RUN, _SCATTERED = 3, 4  # the version, which also determines the form of the tails
# The bytes of a head and of a scattered tail without their codes.
_HEAD_SAYS, _TAIL_SAYS = 22, 12
# All are multiples of three bytes, so that their base64 texts can be joined without padding.
_HEAD_BYTES = _HEAD_SAYS + 8
_RUN_TAIL_BYTES = 3
_SCATTERED_TAIL_BYTES = _TAIL_SAYS + 9
HEAD_LENGTH = _HEAD_BYTES * 4 // 3
_LENGTHS = {
    HEAD_LENGTH + _RUN_TAIL_BYTES * 4 // 3: _RUN,
    HEAD_LENGTH + _SCATTERED_TAIL_BYTES * 4 // 3: _SCATTERED,
}
_PLACE_LENGTH = 4  # every tail starts with the position in the lease
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")  # characters that are never written are refused


class Receipt(NamedTuple):
    """The contents of a receipt, not authenticated; `Receipts.read` checks that."""

    queue: int
    partition: int
    offset: int
    attempt: int
    serial: int


def queue_tag(topic_id: bytes) -> int:
    """Return a number that distinguishes the queues of a group, the same on every node."""
    return int.from_bytes(blake2b(topic_id, digest_size=3).digest(), "big")


class Receipts:
    """Creates and authenticates the receipts of one queue."""

    __slots__ = ("_queue", "secret")

    def __init__(self, queue: int, secret: bytes = b"") -> None:
        self._queue = queue.to_bytes(3, "big")
        self.secret = secret

    def write(
        self, partition: int, serial: int, offsets: Sequence[int], attempts: Sequence[int]
    ) -> tuple[str, Sequence[str]]:
        """Return the head and the tails of a lease's receipts."""
        count = len(offsets)
        is_run = isinstance(offsets, range) and attempts.count(1) == count
        base = offsets[0] if is_run else min(offsets)
        head = b"%c%b%b%b%b%b" % (
            _RUN if is_run else _SCATTERED,
            partition.to_bytes(3, "big"),
            self._queue,
            base.to_bytes(7, "big"),
            count.to_bytes(2, "big"),
            serial.to_bytes(6, "big"),
        )
        text = _text(head + self._code(head, 8))
        if is_run:
            return text, TAILS[:count]
        return text, [
            self._scattered(head, place, offset - base, attempt)
            for place, (offset, attempt) in enumerate(zip(offsets, attempts, strict=True))
        ]

    def _scattered(self, head: bytes, place: int, distance: int, attempt: int) -> str:
        tail = b"\x00%b%b%b" % (
            place.to_bytes(2, "big"),
            distance.to_bytes(7, "big"),
            attempt.to_bytes(2, "big"),
        )
        return _text(tail + self._code(head + tail, 9))

    def read(self, text: str) -> Receipt:
        """Return the contents of a receipt of this queue; raise `InvalidReceipt` for others."""
        packed = _unpack(text)
        head, tail = packed[:_HEAD_SAYS], packed[_HEAD_BYTES:]
        is_genuine = compare_digest(self._code(head, 8), packed[_HEAD_SAYS:_HEAD_BYTES])
        if head[0] == _SCATTERED:
            code = self._code(head + tail[:_TAIL_SAYS], 9)
            is_genuine &= compare_digest(code, tail[_TAIL_SAYS:])
        receipt, count = _parse(packed)
        place = int.from_bytes(tail[:3], "big")
        if not is_genuine or place >= count or head[4:7] != self._queue:
            raise InvalidReceipt("this queue has not issued it")
        return receipt

    def _code(self, data: bytes, size: int) -> bytes:
        return blake2b(data, key=self.secret, digest_size=size).digest()


def check_receipt(text: str) -> Receipt:
    """Return the contents of a well-formed receipt, without authenticating it."""
    return _parse(_unpack(text))[0]


def place_in(tail: str) -> int:
    """Return the position in the lease that a tail names; -1 if it is not a tail."""
    return PLACES.get(tail[:_PLACE_LENGTH], -1)


def _unpack(text: str) -> bytes:
    form = _LENGTHS.get(len(text))
    if form is None:
        raise InvalidReceipt("it has the wrong length")
    try:
        packed = a2b_base64(text.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (BinasciiError, UnicodeEncodeError):
        raise InvalidReceipt("it contains characters that receipts do not have") from None
    if packed[0] != form:
        raise InvalidReceipt("its format is not known here")
    return packed


def _parse(packed: bytes) -> tuple[Receipt, int]:
    """Return the contents, and the number of messages of the lease."""
    partition = int.from_bytes(packed[1:4], "big")
    queue = int.from_bytes(packed[4:7], "big")
    base = int.from_bytes(packed[7:14], "big")
    count = int.from_bytes(packed[14:16], "big")
    serial = int.from_bytes(packed[16:22], "big")
    tail = packed[_HEAD_BYTES:]
    if packed[0] == _RUN:
        offset, attempt = base + int.from_bytes(tail, "big"), 1
    else:
        offset = base + int.from_bytes(tail[3:10], "big")
        attempt = int.from_bytes(tail[10:12], "big")
    return Receipt(queue, partition, offset, attempt, serial), count


def _text(packed: bytes) -> str:
    return b2a_base64(packed, newline=False).translate(_TO_URL).decode()


# Tails by position and positions by tail; a lease holds at most what one call may receive.
TAILS = tuple(_text(place.to_bytes(3, "big")) for place in range(RECEIVE_MESSAGES_MAX))
TAIL_BYTES = [tail.encode() for tail in TAILS]
PLACES = {tail: place for place, tail in enumerate(TAILS)}
