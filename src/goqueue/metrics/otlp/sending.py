"""Which export request is sent when: a short queue, repeated attempts, waits that grow."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import NamedTuple

# What waits while the receiver is away. Counters are cumulative, so what is dropped is resolution.
WAITING_MAX = 5
ATTEMPTS_MAX = 6
BACK_OFF_MS_MIN = 1_000
BACK_OFF_MS_MAX = 60_000
RETRY_AFTER_MS_MAX = 10 * 60_000
_RETRYABLE = frozenset({429, 502, 503, 504})
_SUCCESS = range(200, 300)


class Answer(NamedTuple):
    """What a receiver has answered; without a status it could not be reached."""

    status: int | None
    retry_after_ms: int | None = None
    reason: str = ""
    rejected: int = 0  # data points that were not taken, although the request was

    @property
    def is_success(self) -> bool:
        return self.status in _SUCCESS

    @property
    def may_be_repeated(self) -> bool:
        return self.status is None or self.status in _RETRYABLE


class Sending:
    """The export requests that wait, oldest first; one is on its way at a time."""

    def __init__(self, random: Random, attempts_max: int | None = ATTEMPTS_MAX) -> None:
        """Without a number of attempts, requests are repeated until they are answered."""
        self.sent = 0  # requests that were accepted
        self.failed = 0  # attempts that were not
        self.dropped = 0  # requests that were given up
        self._random = random
        self._attempts_max = attempts_max
        self._waiting: deque[bytes] = deque()
        self._current: bytes | None = None
        self._attempts = 0
        self._due_ms = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, body: bytes) -> None:
        """Queue a request; the oldest one is dropped if too many wait."""
        if len(self._waiting) >= WAITING_MAX:
            self._drop()
        self._waiting.append(body)

    def take(self, now_ms: int) -> bytes | None:
        """Return the request to send now, if there is one and none is on its way."""
        if self._current is not None or not self._waiting or now_ms < self._due_ms:
            return None
        self._current = self._waiting[0]
        return self._current

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until there may be something to send; None if nothing waits for that."""
        if self._current is not None or not self._waiting:
            return None
        return max(0, self._due_ms - now_ms)

    def answered(self, answer: Answer, now_ms: int) -> None:
        """Note what became of the request that was taken."""
        body, self._current = self._current, None
        is_oldest = bool(self._waiting) and self._waiting[0] is body
        if answer.is_success:
            self.sent += 1
            self._attempts = 0
            if is_oldest:
                self._waiting.popleft()
            return
        self.failed += 1
        if not is_oldest:
            self._attempts = 0  # It was dropped on its way.
        elif not answer.may_be_repeated or self._attempts + 1 == self._attempts_max:
            self._drop()
        else:
            self._attempts += 1
        if answer.may_be_repeated:
            self._due_ms = now_ms + self._back_off_ms(answer)

    def _drop(self) -> None:
        self._waiting.popleft()
        self._attempts = 0
        self.dropped += 1

    def _back_off_ms(self, answer: Answer) -> int:
        """As the receiver says; otherwise twice as long each time, and never the same for all."""
        if answer.retry_after_ms is not None:
            return min(answer.retry_after_ms, RETRY_AFTER_MS_MAX)
        most = min(BACK_OFF_MS_MAX, BACK_OFF_MS_MIN << min(self._attempts, 10))
        return int(most * self._random.uniform(0.5, 1.0))
