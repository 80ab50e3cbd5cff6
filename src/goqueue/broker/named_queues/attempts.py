"""Receive calls that are repeated because their response was lost.

A client that names its attempt gets the same messages again, as long as it still holds all of
them; otherwise they would be leased but unknown to any client until their leases expire. Attempts
are kept in the memory of the node that owns the queue.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from goqueue.broker.queues.records import PackedReceived, Received

ATTEMPT_MS = 5 * 60_000
ATTEMPTS_MAX = 1000  # responses kept; the oldest are dropped first
BYTES_MAX = 32 << 20  # over all responses
_Key = tuple[bytes, str]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PackedReceived).decode


class Attempt(NamedTuple):
    """A response that may be requested again."""

    until_ms: int
    receipts: list[str]
    packed: bytes  # so that it does not keep whole batches in memory
    note: bytes  # of the caller, returned with the messages

    @property
    def received(self) -> Received:
        return Received.unpack(_decode(self.packed))


class Attempts:
    """The responses of the last minutes, by queue and by the name that the client gave."""

    def __init__(self) -> None:
        self._kept: dict[_Key, Attempt] = {}
        self._size = 0

    def find(self, queue_id: bytes, name: str, now_ms: int) -> Attempt | None:
        attempt = self._kept.get((queue_id, name))
        if attempt is None or attempt.until_ms <= now_ms:
            return None
        return attempt

    def keep(
        self, queue_id: bytes, name: str, received: Received, now_ms: int, *, note: bytes = b""
    ) -> None:
        self.forget(queue_id, name)
        if not received:
            return
        packed = _encode(received.pack())
        size = len(packed) + len(note)
        if size > BYTES_MAX:
            return
        while len(self._kept) >= ATTEMPTS_MAX or self._size + size > BYTES_MAX:
            self.forget(*next(iter(self._kept)))
        self._kept[queue_id, name] = Attempt(now_ms + ATTEMPT_MS, received.receipts, packed, note)
        self._size += size

    def forget(self, queue_id: bytes, name: str) -> None:
        gone = self._kept.pop((queue_id, name), None)
        if gone is not None:
            self._size -= len(gone.packed) + len(gone.note)
