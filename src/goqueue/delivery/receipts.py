"""Receipts: what a consumer holds to prove which message it was given, and when.

A receipt is opaque to its holder. Its head names the queue, the partition and the lease, and how
many messages from which offset on the lease covers; its tail says which of them it is. So a
receipt tells its message by itself, also when its lease is over or another node owns the queue.

A keyed code over that, with a secret of the queue which is kept in the delivery journal, makes it
impossible to invent one. A lease whose offsets follow each other and are delivered for the first
time has one code, in its head. In any other lease every tail has a code and names its message,
because nothing else would say which offsets belong to the lease.

Making and reading a receipt is work for every message, so a lease writes its head once, tails come
from a table, and a receipt of a live lease is never unpacked: its head is looked up as it is.
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

_RUN, _SCATTERED = 3, 4  # the version, and the form of the tails
# What a head and a scattered tail say, without the code behind it.
_HEAD_SAYS, _TAIL_SAYS = 22, 12
# All are multiples of three bytes, so that their texts can be joined and need no padding.
_HEAD_BYTES = _HEAD_SAYS + 8
_RUN_TAIL_BYTES = 3
_SCATTERED_TAIL_BYTES = _TAIL_SAYS + 9
HEAD_LENGTH = _HEAD_BYTES * 4 // 3
_LENGTHS = {
    HEAD_LENGTH + _RUN_TAIL_BYTES * 4 // 3: _RUN,
    HEAD_LENGTH + _SCATTERED_TAIL_BYTES * 4 // 3: _SCATTERED,
}
_PLACE_LENGTH = 4  # the place is at the beginning of every tail
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/=", b"+/!!!")  # the signs we never write must not be read


class Receipt(NamedTuple):
    """What a receipt says; whether it is genuine is for `Receipts.read` to say."""

    queue: int
    partition: int
    offset: int
    attempt: int
    serial: int


def queue_tag(topic_id: bytes) -> int:
    """A number that tells the queues of a group apart, on whichever node."""
    return int.from_bytes(blake2b(topic_id, digest_size=3).digest(), "big")


class Receipts:
    """Makes the receipts of one queue, and tells them from invented ones."""

    __slots__ = ("_queue", "secret")

    def __init__(self, queue: int, secret: bytes = b"") -> None:
        self._queue = queue.to_bytes(3, "big")
        self.secret = secret

    def write(
        self, partition: int, serial: int, offsets: Sequence[int], attempts: Sequence[int]
    ) -> tuple[str, Sequence[str]]:
        """The head and the tails of a lease's receipts."""
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
        """What a receipt of this queue says; `InvalidReceipt` if it is none."""
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
    """What a receipt that is well formed says; whether it is genuine its queue must say."""
    return _parse(_unpack(text))[0]


def place_in(tail: str) -> int:
    """The place in the lease that a tail names; -1 if that is no tail."""
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
    """What it says, and how many messages its lease covers."""
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


# The tails by place, and the places by tail; a lease covers what one call received.
TAILS = tuple(_text(place.to_bytes(3, "big")) for place in range(RECEIVE_MESSAGES_MAX))
TAIL_BYTES = [tail.encode() for tail in TAILS]
PLACES = {tail: place for place, tail in enumerate(TAILS)}
