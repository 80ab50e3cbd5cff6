"""Initial delay: messages stay invisible for a fixed time after they were stored.

As the delay is the same for every message of a group, messages become visible in log order. So no
state per message is needed: the partition appears to end where its messages are old enough, and
that visible end follows the real one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

STEPS = 256  # the delay in steps: messages within one step count as arriving at its end


class InitialDelays:
    """The recent arrival times of a partition's messages, as (time, end offset) pairs."""

    __slots__ = ("_begun_ms", "_entries", "_known_end", "_visible_end")

    def __init__(self, arrived: Iterable[tuple[int, int]] = ()) -> None:
        """`arrived` holds ascending times, each with the offset before which all had arrived."""
        self._entries: deque[tuple[int, int]] = deque(arrived)
        self._begun_ms = self._entries[-1][0] if self._entries else 0
        self._visible_end = 0
        self._known_end = 0

    @property
    def known_end(self) -> int:
        return self._known_end

    def note(self, end: int, now_ms: int, delay_ms: int) -> None:
        """Note that messages up to `end` have arrived by now."""
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
        """Return the offset before which all messages are visible."""
        entries = self._entries
        while entries and entries[0][0] + delay_ms <= now_ms:
            self._visible_end = max(self._visible_end, entries.popleft()[1])
        return min(self._visible_end, self._known_end)

    def next_ms(self, delay_ms: int) -> int | None:
        """When more of the stored messages become visible."""
        if self._visible_end >= self._known_end or not self._entries:
            return None
        return self._entries[0][0] + delay_ms
