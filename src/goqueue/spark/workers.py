"""Processes that Spark keeps for its Python tasks, and what they keep from one task to the next."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

from goqueue.client import LogClient
from goqueue.spark.connecting import connect_again

IDLE_CLIENTS_MAX = 4  # of different brokers; a process seldom reads from more than one

# Chunks of a task are freed and asked for again all the time. Left to itself, the C library gives
# such memory back to the system, which then has to clear it again, page by page.
FREED_BYTES_KEPT = 64 << 20
BLOCK_BYTES_KEPT = 32 << 20  # the most that the C library takes
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them

_DAEMON = "pyspark.daemon"
_idle: dict[
    tuple[int, str], LogClient
] = {}  # by process, because connections do not survive a fork
_settled: set[int] = set()


def settle_process() -> None:
    """Prepare a worker of Spark for tasks, once. Processes that are not Spark's own are left alone.

    What it has loaded by now is taken out of the search for garbage, in which a worker goes through
    all its memory after each task. Modules and classes, which is all there is between tasks, take
    some 40 ms to search and never become garbage.
    """
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name == _DAEMON and os.getpid() not in _settled:
        _settled.add(os.getpid())
        gc.freeze()
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Tell the C library to keep some freed memory, where it is one that can be told (glibc)."""
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None:
        tell(_MMAP_THRESHOLD, BLOCK_BYTES_KEPT)
        tell(_TRIM_THRESHOLD, FREED_BYTES_KEPT)


def take_client(bootstrap: str) -> LogClient:
    """A client for one task: the one that an earlier task has left, or a new one."""
    client = _idle.pop((os.getpid(), bootstrap), None)
    if client is None:
        return connect_again(bootstrap)
    client.cluster.forget()
    return client


def leave_client(bootstrap: str, client: LogClient) -> None:
    """Keep a client for the next task; it must have worked, and nobody may use it any more."""
    place = os.getpid(), bootstrap
    if len(_idle) >= IDLE_CLIENTS_MAX or _idle.setdefault(place, client) is not client:
        client.close()
