"""Deadlines that move far more often than they pass.

Every heartbeat moves a session's deadline. So a timer that moves later only changes a field: when
its old entry in the heap comes up, the deadline has moved, and the entry is put back. Moving is
then O(1), and heap operations are rare.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

NEVER = -1


class Timer:
    """One deadline and its action."""

    __slots__ = ("deadline_ms", "fire", "queued_ms")

    def __init__(self, fire: Callable[[int], None]) -> None:
        self.fire = fire
        self.deadline_ms = NEVER
        self.queued_ms = NEVER

    @property
    def is_armed(self) -> bool:
        return self.deadline_ms != NEVER

    def cancel(self) -> None:
        self.deadline_ms = NEVER


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0  # keeps equal deadlines in the order they were armed

    def __len__(self) -> int:
        """The approximate number of deadlines."""
        return len(self._heap)

    def arm(self, timer: Timer, deadline_ms: int) -> None:
        timer.deadline_ms = deadline_ms
        if timer.queued_ms == NEVER or deadline_ms < timer.queued_ms:
            self._queue(timer)

    def next_deadline_ms(self) -> int | None:
        """When to check again; it may be early, never late."""
        heap = self._heap
        while heap:
            queued_ms, _, timer = heap[0]
            if queued_ms == timer.queued_ms and timer.deadline_ms == queued_ms:
                return queued_ms
            self._drop_first()
        return None

    def pop_due(self, now_ms: int) -> Timer | None:
        """The next timer whose deadline has passed, disarmed."""
        next_ms = self.next_deadline_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        timer = heapq.heappop(self._heap)[2]
        timer.queued_ms = timer.deadline_ms = NEVER
        return timer

    def _drop_first(self) -> None:
        queued_ms, _, timer = heapq.heappop(self._heap)
        if queued_ms != timer.queued_ms:
            return  # An earlier entry in the heap covers it.
        timer.queued_ms = NEVER
        if timer.is_armed:
            self._queue(timer)

    def _queue(self, timer: Timer) -> None:
        timer.queued_ms = timer.deadline_ms
        self._sequence += 1
        heapq.heappush(self._heap, (timer.deadline_ms, self._sequence, timer))
