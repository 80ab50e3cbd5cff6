"""Memory that is kept at hand for the next run.

A virtual machine gives memory that has been free for some seconds back to its host, and whoever
asks for it next waits until it is there again: some microseconds for each page. A run that fills
the page cache would measure that, or not, by chance. So between runs this process holds memory,
and lets go of it when one begins.
"""

from __future__ import annotations

import contextlib
import mmap

RESERVE_BYTES = 3 << 29
# The rest of the machine must have several times as much left.
SHARE_MAX = 0.2

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14; the module has no name for it


class Reserve:
    """Held between runs, given away when one begins."""

    def __init__(self) -> None:
        self._held: mmap.mmap | None = None
        self.hold()

    def hold(self) -> None:
        """Take memory, as far as there is plenty."""
        size = min(RESERVE_BYTES, int(_available_bytes() * SHARE_MAX))
        self._held = mmap.mmap(-1, size)
        # Where the kernel does not know this, runs vary more.
        with contextlib.suppress(OSError):
            self._held.madvise(_POPULATE_WRITE)

    def give(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _available_bytes() -> int:
    with open("/proc/meminfo") as lines:
        found = next(line for line in lines if line.startswith("MemAvailable:"))
    return int(found.split()[1]) << 10
