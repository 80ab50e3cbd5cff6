"""Returns free memory to the system: when to run the garbage collector, and when to trim the heap.

The objects of a request are freed with it, because nothing that a client can keep alive contains a
reference cycle. Exceptions are handled here: the size of the process is checked every second, and
when it has grown considerably the garbage collector runs, first on the young generations. Memory in
use at that time may be freed later without further growth, so while the process is larger than it
was before, the heap of the allocator is trimmed every few seconds.

A collection stops the event loop for as long as it takes to look at every object, half a second
for a million of them. So the number that a collection looks at is bounded: what has survived is
excluded from further collections, fifty thousand objects at a time. Excluded objects are freed
when nothing refers to them, like all others. Only a cycle among them is not found, until the
process has doubled in size: then, and only then, all objects are looked at.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable
from typing import Protocol

# Thresholds of the garbage collector: new objects before a collection, and collections of a younger
# generation before one of the older. There are hardly any cycles. With Python's defaults, 700 and
# 10, a few requests of a thousand messages cause a full collection, which blocks all requests.
# Python starts no collection of old objects by itself, because only `look` bounds their number.
_NEVER = 1 << 30
GC_THRESHOLDS = (50_000, 1, _NEVER)
CHECK_SECONDS = 1.0
GROWTH_BYTES = 32 << 20  # since the last collection; less is not worth another
# Old objects, those that are not excluded, are collected only when the process has grown by this
# share since the last time, and after a pause of this many times the duration of the last one.
GROWTH_RATIO = 0.25
COLLECTION_PAUSE = 200
COLLECTION_SECONDS_MIN = 10.0
# More old objects than this are excluded from further collections. They are collected first, unless
# so many have been added within a second that even that would take long.
OLD_OBJECTS_MAX = 50_000
OLD_OBJECTS_COLLECTED_MAX = 100_000
# All objects are collected when the process is this many times as large as after the last time, and
# has grown by so much. That takes 0.3 s of processor time per million objects.
WHOLE_GROWTH = 2
WHOLE_GROWTH_BYTES = 256 << 20
# Larger blocks are mapped individually and returned to the system when freed. By default glibc
# raises this threshold up to 32 MiB once large blocks were freed, and then keeps them.
SYSTEM_PIECE_BYTES_MIN = 4 << 20
TRIM_SECONDS_MIN = 5.0
TRIM_PAUSE = 200  # times its duration
TRIM_BYTES = 16 << 20  # free memory at the end of the heap that is returned

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Collector(Protocol):
    """The garbage collector, whose oldest generation is 2."""

    def collect(self, generation: int) -> object: ...
    def count_old(self) -> int:
        """Return the number of objects in the oldest generation."""
        ...

    def exclude(self) -> None:
        """Exclude all existing objects from further collections."""
        ...

    def include(self) -> None:
        """Move the excluded objects to the oldest generation."""
        ...


class PythonCollector:
    """The garbage collector of this process."""

    def __init__(self) -> None:
        self._collections = -1
        self._old = 0

    def collect(self, generation: int) -> object:
        return gc.collect(generation)

    def count_old(self) -> int:
        """Return the number of old objects as of the last collection, which alone adds some."""
        collections = sum(one["collections"] for one in gc.get_stats()[1:])
        if collections != self._collections:
            self._collections = collections
            self._old = len(gc.get_objects(2))
        return self._old

    def exclude(self) -> None:
        self._old = 0
        gc.freeze()

    def include(self) -> None:
        gc.unfreeze()


class MemoryKeeper:
    """Controls garbage collection and heap trimming of a serving process."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        resident: Callable[[], int] | None = None,
        collector: Collector | None = None,
        give_back: Callable[[], object] | None = None,
    ) -> None:
        self._loop = loop
        self._resident = resident or resident_bytes
        self._collector = collector or PythonCollector()
        self._libc = _allocator()
        self._give_back = give_back or self._trim_heap
        self._young_bytes = self._resident()  # after the last collection of the young generations
        self._old_bytes = self._young_bytes  # after the last collection of old objects
        self._old_at = 0.0
        self._whole_bytes = self._young_bytes  # after the last collection of all objects
        self._whole_at = 0.0
        self._least_bytes = self._young_bytes  # ever
        self._trim_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, before the data is opened: that creates most of the objects of a large node."""
        gc.collect()
        gc.set_threshold(*GC_THRESHOLDS)
        if self._libc is not None:
            self._libc.mallopt(_M_MMAP_THRESHOLD, SYSTEM_PIECE_BYTES_MIN)
            self._libc.mallopt(_M_TRIM_THRESHOLD, TRIM_BYTES)
        self.opened()
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def opened(self) -> None:
        """Exclude what exists: state that was read from the data lives as long as the process."""
        self._collector.collect(1)
        self._collector.exclude()
        resident = self._resident()
        self._young_bytes = self._old_bytes = self._whole_bytes = self._least_bytes = resident

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)
        self.look()

    def look(self) -> None:
        """Collect garbage if the process has grown: the young generations first, then older."""
        resident = self._resident()
        self._young_bytes = min(self._young_bytes, resident)
        self._old_bytes = min(self._old_bytes, resident)
        self._whole_bytes = min(self._whole_bytes, resident)
        if resident - self._young_bytes >= GROWTH_BYTES:
            self._collector.collect(1)
            self._trim()
            self._young_bytes = resident = self._resident()
        self._bound_old()
        if self._has_doubled(resident) and self._loop.time() >= self._whole_at:
            resident = self._look_at_all()
        elif self._has_grown(resident) and self._loop.time() >= self._old_at:
            resident = self._look_at_old()
        self._least_bytes = min(self._least_bytes, resident)
        if resident - self._least_bytes >= GROWTH_BYTES and self._loop.time() >= self._trim_at:
            self._trim()

    def _bound_old(self) -> None:
        """Exclude old objects when there are so many that looking at them would take long."""
        old = self._collector.count_old()
        if old > OLD_OBJECTS_MAX:
            if old <= OLD_OBJECTS_COLLECTED_MAX and self._loop.time() >= self._old_at:
                self._old_at = self._collect(2)
            self._collector.exclude()

    def _has_grown(self, resident: int) -> bool:
        worth_it = max(GROWTH_BYTES, int(self._old_bytes * GROWTH_RATIO))
        return resident - self._old_bytes >= worth_it

    def _has_doubled(self, resident: int) -> bool:
        worth_it = max(WHOLE_GROWTH_BYTES, self._whole_bytes * (WHOLE_GROWTH - 1))
        return resident - self._whole_bytes >= worth_it

    def _look_at_old(self) -> int:
        self._old_at = self._collect(2)
        self._trim()
        self._young_bytes = self._old_bytes = self._resident()
        return self._old_bytes

    def _look_at_all(self) -> int:
        self._collector.include()
        self._whole_at = self._collect(2)
        self._collector.exclude()
        self._trim()
        self._young_bytes = self._old_bytes = self._whole_bytes = self._resident()
        return self._whole_bytes

    def _collect(self, generation: int) -> float:
        """Collect; return when that may be done again."""
        began = self._loop.time()
        self._collector.collect(generation)
        took = self._loop.time() - began
        return began + max(COLLECTION_SECONDS_MIN, COLLECTION_PAUSE * took)

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
