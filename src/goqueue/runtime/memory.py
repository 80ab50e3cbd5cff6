"""Returns free memory to the system: when to run the garbage collector, and when to trim the heap.

The objects of a request are freed with it, because nothing that a client can keep alive contains a
reference cycle. Exceptions are handled here: the size of the process is checked every second, and
when it has grown considerably the garbage collector runs, first on the young generations. Memory in
use at that time may be freed later without further growth, so while the process is larger than it
was before, the heap of the allocator is trimmed every few seconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable

# Thresholds of the garbage collector: new objects before a collection, and collections of a younger
# generation before one of the older. There are hardly any cycles. With Python's defaults, 700 and
# 10, a few requests of a thousand messages cause a full collection, which blocks all requests.
# Python starts no full collection by itself, because only `look` knows how long the last one took.
_NEVER = 1 << 30
GC_THRESHOLDS = (50_000, 1, _NEVER)
CHECK_SECONDS = 1.0
GROWTH_BYTES = 32 << 20  # since the last collection; less is not worth another
# A full collection runs only when the process has grown by this share since the last one, and after
# a pause of this many times the duration of the last one.
GROWTH_RATIO = 0.25
FULL_COLLECTION_PAUSE = 200
FULL_COLLECTION_SECONDS_MIN = 10.0
# Larger blocks are mapped individually and returned to the system when freed. By default glibc
# raises this threshold up to 32 MiB once large blocks were freed, and then keeps them.
SYSTEM_PIECE_BYTES_MIN = 4 << 20
TRIM_SECONDS_MIN = 5.0
TRIM_PAUSE = 200  # times its duration
TRIM_BYTES = 16 << 20  # free memory at the end of the heap that is returned

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryKeeper:
    """Controls garbage collection and heap trimming of a serving process."""

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
        self._young_bytes = self._resident()  # after the last collection of the young generations
        self._full_bytes = self._young_bytes  # after the last full collection
        self._full_at = 0.0
        self._least_bytes = self._young_bytes  # ever
        self._trim_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start; existing objects are excluded, because they live as long as the process."""
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
        """Collect garbage if the process has grown: the young generations first, then all."""
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
        """Make the allocator return free memory in the middle of its heap (malloc_trim)."""
        began = self._loop.time()
        self._give_back()
        took = self._loop.time() - began
        self._trim_at = began + max(TRIM_SECONDS_MIN, TRIM_PAUSE * took)

    def _trim_heap(self) -> None:
        if self._libc is not None:
            self._libc.malloc_trim(0)


def resident_bytes() -> int:
    """The resident memory of this process; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _allocator() -> ctypes.CDLL | None:
    """The C library, if its allocator can be configured; else None."""
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim.argtypes = (ctypes.c_size_t,)
        library.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    except (OSError, AttributeError):
        return None
    return library
