"""The process: CPU time, memory, file descriptors and threads, as every Prometheus client has them.

On systems without `/proc`, what needs it is left out.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from goqueue.metrics import Samples
from goqueue.metrics import catalogue as metrics

_PROC = Path("/proc/self")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")  # of times in /proc, in a second
# Fields of /proc/self/stat after the name of the program.
_THREADS, _START = 17, 19


def collect_process(samples: Samples) -> Iterator[None]:
    """Read what the system knows of this process."""
    samples.set(metrics.PROCESS_CPU, time.process_time())
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        samples.set(metrics.PROCESS_MAX_FDS, most)
    try:
        _collect_from_proc(samples)
    except OSError:
        return  # There is no /proc, or no file descriptor left to read it.
    yield


def _collect_from_proc(samples: Samples) -> None:
    virtual, resident = (_PROC / "statm").read_text().split()[:2]
    samples.set(metrics.PROCESS_VIRTUAL_MEMORY, int(virtual) * _PAGE_BYTES)
    samples.set(metrics.PROCESS_RESIDENT_MEMORY, int(resident) * _PAGE_BYTES)
    # The name may contain spaces and parentheses.
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    samples.set(metrics.PROCESS_THREADS, int(fields[_THREADS]))
    samples.set(metrics.PROCESS_START_TIME, int(fields[_START]) / _TICKS + _boot_time())
    samples.set(metrics.PROCESS_OPEN_FDS, len(os.listdir(_PROC / "fd")) - 1)


def _boot_time() -> float:
    """When the system was started, in seconds since 1970."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0
