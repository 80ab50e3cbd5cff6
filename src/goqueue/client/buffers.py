"""Memory for answers, which is used again once nobody looks at it.

New memory for an answer of some megabytes costs half as much as receiving it: the system hands it
out page by page, and Python clears it while its other threads wait.
"""

from __future__ import annotations

BYTES_MIN = 64 << 10  # smaller ones are cheap to get anew
BYTES_MAX = 16 << 20  # larger ones are not kept
_STEP_BYTES = 1 << 20  # sizes are rounded up, so that an answer that is a little larger fits too


class ReceiveBuffers:
    """Keeps up to so many buffers for one thread; others may read what they hold."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """So many bytes to be written to, which are nobody else's while a view of them lives."""
        if not self._kept_max or not BYTES_MIN <= size <= BYTES_MAX:
            return memoryview(bytearray(size))
        free = [place for place, buffer in enumerate(self._kept) if _is_free(buffer)]
        for place in free:
            if len(self._kept[place]) >= size:
                return memoryview(self._kept[place])[:size]
        buffer = bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
        if free:
            self._kept[free[0]] = buffer
        elif len(self._kept) < self._kept_max:
            self._kept.append(buffer)
        return memoryview(buffer)[:size]


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of a buffer is left, since only then it may change its length."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True
