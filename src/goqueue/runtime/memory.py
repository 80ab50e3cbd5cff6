"""Memory that is free goes back: when cycles are looked for, and what the allocator keeps.

What a request makes goes with it, because nothing that a client can hang on to refers to itself.
What does refer to itself in spite of that is found here: the size of the process is looked at every
second, and when it has grown by much, cycles are looked for, first among young objects. What was
in use then may be freed later without any growth: while the process is larger than it has been, the
allocator is had to give back what is free, every few seconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable

# So many new objects may live before the garbage collector looks for cycles among them, and so many
# rounds of the younger go before one of the older. There are hardly any cycles. With Python's own
# 700, or rounds of ten, a few requests of a thousand messages are enough to have it visit
# everything there is, while everybody waits.
GC_THRESHOLDS = (50_000, 1, 20)
CHECK_SECONDS = 1.0
GROWTH_BYTES = 32 << 20  # since the last look; less is not worth another
# All objects are looked at only when the process has grown by this share since the last time, and
# not before so many times as long has passed as that took.
GROWTH_RATIO = 0.25
FULL_COLLECTION_PAUSE = 200
FULL_COLLECTION_SECONDS_MIN = 10.0
# Larger pieces of memory are had from the system and given back one by one. By default the
# allocator raises this bound to 32 MiB once it has seen large pieces, and keeps what it freed.
SYSTEM_PIECE_BYTES_MIN = 4 << 20
TRIM_SECONDS_MIN = 5.0
TRIM_PAUSE = 200  # times as long as it took
TRIM_BYTES = 16 << 20  # free memory at the end of the heap that is given back

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryKeeper:
    """Looks after the memory of a process that serves."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        resident: Callable[[], int] | None = None,
        collect: Callable[[int], object] = gc.collect,
        give_back: Callable[[], object] | None = None,
    ) -> None:
        self._loop = loop
        self._resident = resident or resident_bytes
        self._collect = collect
        self._libc = _allocator()
        self._give_back = give_back or self._trim_heap
        self._young_bytes = self._resident()  # after the last look among young objects
        self._full_bytes = self._young_bytes  # after the last look among all
        self._full_at = 0.0
        self._least_bytes = self._young_bytes  # ever
        self._trim_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """From here on. What there is already lives as long as the process."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        if self._libc is not None:
            self._libc.mallopt(_M_MMAP_THRESHOLD, SYSTEM_PIECE_BYTES_MIN)
            self._libc.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        self._young_bytes = self._full_bytes = self._least_bytes = self._resident()
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)
        self.look()

    def look(self) -> None:
        """Look for cycles if the process has grown: among young objects, then among all."""
        resident = self._resident()
        self._young_bytes = min(self._young_bytes, resident)
        self._full_bytes = min(self._full_bytes, resident)
        if resident - self._young_bytes >= GROWTH_BYTES:
            self._collect(1)
            self._trim()
            self._young_bytes = resident = self._resident()
        worth_it = max(GROWTH_BYTES, int(self._full_bytes * GROWTH_RATIO))
        now = self._loop.time()
        if resident - self._full_bytes >= worth_it and now >= self._full_at:
            self._look_at_all(now)
        self._least_bytes = min(self._least_bytes, resident)
        if resident - self._least_bytes >= GROWTH_BYTES and self._loop.time() >= self._trim_at:
            self._trim()

    def _look_at_all(self, now: float) -> None:
        self._collect(2)
        took = self._loop.time() - now
        self._full_at = now + max(FULL_COLLECTION_SECONDS_MIN, FULL_COLLECTION_PAUSE * took)
        self._trim()
        self._young_bytes = self._full_bytes = self._resident()

    def _trim(self) -> None:
        """Have the allocator give back what is free in the middle of its heap."""
        began = self._loop.time()
        self._give_back()
        took = self._loop.time() - began
        self._trim_at = began + max(TRIM_SECONDS_MIN, TRIM_PAUSE * took)

    def _trim_heap(self) -> None:
        if self._libc is not None:
            self._libc.malloc_trim(0)


def resident_bytes() -> int:
    """The memory that this process holds; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _allocator() -> ctypes.CDLL | None:
    """The C library, if it is one that can be told what to keep; None elsewhere."""
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim.argtypes = (ctypes.c_size_t,)
        library.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    except (OSError, AttributeError):
        return None
    return library
