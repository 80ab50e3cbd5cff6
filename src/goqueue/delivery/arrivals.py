"""Arrival times of the messages of a partition, approximated by a few checkpoints."""

from __future__ import annotations

from array import array
from bisect import bisect_right

CHECKPOINTS_MAX = 1024
STEP_MS = 20  # minimum distance; finer checkpoints would add no useful precision


class Arrivals:
    """Checkpoints (offset, time): messages from that offset on arrived at that time or later.

    A message gets the time of the checkpoint before it, so that its wait is never
    underestimated. When there are too many checkpoints, every second one is dropped.
    """

    __slots__ = ("_checkpoints_max", "_offsets", "_times")

    def __init__(self, first: int, now_ms: int, *, checkpoints_max: int = CHECKPOINTS_MAX) -> None:
        """Messages that already exist count as having arrived now."""
        self._checkpoints_max = checkpoints_max
        self._offsets = array("q", (first,))
        self._times = array("q", (now_ms,))

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, first: int, now_ms: int) -> None:
        """Note that messages from `first` on have arrived now."""
        if first <= self._offsets[-1]:
            self._times[-1] = max(now_ms, self._times[-1])  # no message had arrived there yet
            return
        if now_ms < self._times[-1] + STEP_MS:
            return
        self._offsets.append(first)
        self._times.append(now_ms)
        if len(self._offsets) > self._checkpoints_max:
            self._offsets = self._offsets[::2]
            self._times = self._times[::2]

    def arrived_ms(self, offset: int) -> int:
        return self._times[max(0, bisect_right(self._offsets, offset) - 1)]

    def forget_before(self, offset: int) -> None:
        gone = bisect_right(self._offsets, offset) - 1
        if gone > 0:
            del self._offsets[:gone]
            del self._times[:gone]
