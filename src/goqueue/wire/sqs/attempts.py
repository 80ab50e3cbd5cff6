"""Receive calls that are made again because their answer was lost.

A client that names its attempt gets the same messages again, for as long as it holds all of them
still; otherwise they would be out with nobody until their time is over.
"""

from __future__ import annotations

from typing import NamedTuple

from goqueue.wire.sqs.shapes import Message

ATTEMPT_MS = 5 * 60_000
ATTEMPTS_MAX = 1000  # answers that are kept; the oldest go first
BODIES_BYTES_MAX = 32 << 20  # about what they may take, all together
_Key = tuple[bytes, str]


class Attempt(NamedTuple):
    """An answer that may be asked for again."""

    until_ms: int
    messages: list[Message]
    size: int

    @property
    def receipts(self) -> list[str]:
        return [one.receipt_handle for one in self.messages]


class Attempts:
    """The answers of the last minutes, by queue and by the name that the client gave."""

    def __init__(self) -> None:
        self._kept: dict[_Key, Attempt] = {}
        self._size = 0

    def find(self, queue_id: bytes, name: str, now_ms: int) -> Attempt | None:
        attempt = self._kept.get((queue_id, name))
        if attempt is None or attempt.until_ms <= now_ms:
            return None
        return attempt

    def keep(self, queue_id: bytes, name: str, messages: list[Message], now_ms: int) -> None:
        self.forget(queue_id, name)
        size = sum(len(one.body) for one in messages)
        if not messages or size > BODIES_BYTES_MAX:
            return
        while len(self._kept) >= ATTEMPTS_MAX or self._size + size > BODIES_BYTES_MAX:
            self.forget(*next(iter(self._kept)))
        self._kept[queue_id, name] = Attempt(now_ms + ATTEMPT_MS, messages, size)
        self._size += size

    def forget(self, queue_id: bytes, name: str) -> None:
        gone = self._kept.pop((queue_id, name), None)
        if gone is not None:
            self._size -= gone.size
