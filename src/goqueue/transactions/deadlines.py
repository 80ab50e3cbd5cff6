"""The next deadline of each transaction.

A deadline moves with every step of a transaction and seldom passes. So one that moves later only
changes a table: when its old entry in the heap comes up, it has moved, and the entry is put back.
"""

from __future__ import annotations

import heapq


class Deadlines:
    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self._queued: dict[str, int] = {}  # the entry in the heap that is valid
        self._heap: list[tuple[int, str]] = []

    def set(self, name: str, deadline_ms: int | None) -> None:
        if deadline_ms is None:
            self._deadlines.pop(name, None)
            return
        self._deadlines[name] = deadline_ms
        queued_ms = self._queued.get(name)
        if queued_ms is None or deadline_ms < queued_ms:
            self._queue(name, deadline_ms)

    def next_ms(self) -> int | None:
        """The next deadline, or None if there is none."""
        while self._heap:
            queued_ms, name = self._heap[0]
            if self._queued.get(name) == queued_ms == self._deadlines.get(name):
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(name) == queued_ms:
                del self._queued[name]
                if name in self._deadlines:
                    self._queue(name, self._deadlines[name])
        return None

    def pop_due(self, now_ms: int) -> str | None:
        """Remove and return one whose deadline has passed."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        _, name = heapq.heappop(self._heap)
        del self._queued[name], self._deadlines[name]
        return name

    def _queue(self, name: str, deadline_ms: int) -> None:
        self._queued[name] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, name))
