"""Costly checks of credentials: in threads, a few at a time, and successes are remembered.

Thousands of clients may log in at once, after a restart for example. Their passwords are checked a
few at a time beside the event loop, which goes on to serve others. Clients that present what was
right a moment ago are let in without another check.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Hashable
from random import Random
from typing import TypeVar

from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import LimitReached

RUNNING_MAX = 2  # of the threads, which disks need too
WAITING_MAX = 5_000
REMEMBERED_MAX = 10_000
REMEMBERED_MS = 60_000

T = TypeVar("T")


class Checks:
    """A queue of checks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running = 0
        self._waiting: deque[Promise[None]] = deque()

    async def enter(self) -> None:
        """Wait for a turn; `leave` must follow."""
        if self._running < RUNNING_MAX:
            self._running += 1
            return
        if len(self._waiting) >= WAITING_MAX:
            raise LimitReached("Too many clients log in at the same time; try again soon.")
        turn: Promise[None] = Promise()
        self._waiting.append(turn)
        await turn

    def leave(self) -> None:
        if self._waiting:
            # Not at once: the rest of the queue must not run inside of this call.
            self._clock.call_soon(self._next)
        else:
            self._running -= 1

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft().resolve(None)
        else:
            self._running -= 1

    def in_thread(self, work: Callable[[], T]) -> Promise[T]:
        promise: Promise[T] = Promise()
        self._clock.run_blocking(work, promise.settle)
        return promise


class Remembered:
    """Credentials that were right, as keyed hashes, for a short time.

    Each is remembered with a basis, such as the verifier that it was checked against, and counts
    only as long as the basis is the same.
    """

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._key = b""  # made at the first use
        self._entries: dict[bytes, tuple[int, Hashable, object]] = {}

    def digest(self, *parts: str) -> bytes:
        self._key = self._key or self._random.randbytes(32)
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in parts:
            data = part.encode()
            digest.update(len(data).to_bytes(4, "big") + data)
        return digest.digest()

    def has(self, digest: bytes, basis: Hashable) -> bool:
        return self.get(digest, basis) is not None

    def get(self, digest: bytes, basis: Hashable) -> object:
        """Return what is remembered of credentials; None if they are not known."""
        until_ms, known, value = self._entries.get(digest, (0, None, None))
        return value if until_ms > self._clock.now_ms() and known == basis else None

    def add(self, digest: bytes, basis: Hashable, value: object = True) -> None:
        self._entries.pop(digest, None)
        self._entries[digest] = (self._clock.now_ms() + REMEMBERED_MS, basis, value)
        while len(self._entries) > REMEMBERED_MAX:
            del self._entries[next(iter(self._entries))]
