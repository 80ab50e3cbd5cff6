"""Receive buffers that are used again when no view of them is left.

Allocating memory for a response of several megabytes costs half as much as receiving it: the kernel
maps it page by page, and Python clears it while holding the GIL.
"""

from __future__ import annotations

BYTES_MIN = 64 << 10  # allocating less than this is cheap
BYTES_MAX = 16 << 20  # larger buffers are not kept
_STEP_BYTES = 1 << 20  # sizes are rounded up, so that a slightly larger response fits too


class ReceiveBuffers:
    """Keeps up to a number of buffers for one thread; other threads may read from them."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return a writable view of `size` bytes, not shared while a view of it exists."""
        if not self._kept_max or not BYTES_MIN <= size <= BYTES_MAX:
            return memoryview(bytearray(size))
        free = [index for index, buffer in enumerate(self._kept) if _is_free(buffer)]
        for index in free:
            if len(self._kept[index]) >= size:
                return memoryview(self._kept[index])[:size]
        buffer = bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
        if free:
            self._kept[free[0]] = buffer
        elif len(self._kept) < self._kept_max:
            self._kept.append(buffer)
        return memoryview(buffer)[:size]


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of a buffer is left: a bytearray with views cannot be resized."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True
