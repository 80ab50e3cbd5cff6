"""Messages that are held back for a while after they were stored, in the order of the log.

Where a group holds every message back for the same time, none can be due before those before it.
So nothing is kept for single messages: a partition seems to end where its messages are old enough,
and that end follows the real one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

STEPS = 256  # into which the delay is divided: what comes within one counts as coming at its end


class InitialDelays:
    """Up to where a partition's messages had come at which times, as far as they are young."""

    __slots__ = ("_begun_ms", "_entries", "_known_end", "_visible_end")

    def __init__(self, arrived: Iterable[tuple[int, int]] = ()) -> None:
        """`arrived` are times, rising, each with the offset before which all had come by then."""
        self._entries: deque[tuple[int, int]] = deque(arrived)
        self._begun_ms = self._entries[-1][0] if self._entries else 0
        self._visible_end = 0
        self._known_end = 0

    @property
    def known_end(self) -> int:
        return self._known_end

    def note(self, end: int, now_ms: int, delay_ms: int) -> None:
        """Messages up to `end` are there now."""
        self._known_end = max(self._known_end, end)
        entries = self._entries
        if end <= (entries[-1][1] if entries else self._visible_end):
            return
        if entries and now_ms - self._begun_ms < -(-delay_ms // STEPS):
            entries[-1] = (now_ms, end)
        else:
            entries.append((now_ms, end))
            self._begun_ms = now_ms

    def visible_end(self, now_ms: int, delay_ms: int) -> int:
        """Up to where messages are old enough."""
        entries = self._entries
        while entries and entries[0][0] + delay_ms <= now_ms:
            self._visible_end = max(self._visible_end, entries.popleft()[1])
        return min(self._visible_end, self._known_end)

    def next_ms(self, delay_ms: int) -> int | None:
        """When more of what is known will be old enough."""
        if self._visible_end >= self._known_end or not self._entries:
            return None
        return self._entries[0][0] + delay_ms
