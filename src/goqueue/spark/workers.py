"""Spark's Python worker processes, and what they keep from one task to the next."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

from goqueue.client import LogClient
from goqueue.spark.access import OPEN, Access
from goqueue.spark.connecting import connect_again

IDLE_CLIENTS_MAX = 4  # for different brokers; a process seldom reads from more than one

# Chunks of a task are freed and allocated all the time. By default the C library returns such
# memory to the system, which then has to clear it again, page by page.
FREED_BYTES_KEPT = 64 << 20
BLOCK_BYTES_KEPT = 32 << 20  # the maximum that the C library accepts
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # constants of malloc.h

_DAEMON = "pyspark.daemon"
# By process, because connections do not survive a fork.
_idle: dict[tuple[int, str, Access], LogClient] = {}
_settled: set[int] = set()


def settle_process() -> None:
    """Prepare a Spark worker for tasks, once. Other processes are not changed.

    Everything loaded so far is excluded from garbage collection, which a worker runs over all its
    memory after each task. Between tasks only modules and classes exist, which take some 40 ms to
    scan and never become garbage.
    """
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name == _DAEMON and os.getpid() not in _settled:
        _settled.add(os.getpid())
        gc.freeze()
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Make the C library keep some freed memory, if it supports that (glibc)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, BLOCK_BYTES_KEPT)
        mallopt(_TRIM_THRESHOLD, FREED_BYTES_KEPT)


def take_client(bootstrap: str, access: Access = OPEN) -> LogClient:
    """Return a client for one task: one left by an earlier task, or a new one."""
    client = _idle.pop((os.getpid(), bootstrap, access), None)
    if client is None:
        return connect_again(bootstrap, access)
    client.cluster.forget()
    return client


def leave_client(bootstrap: str, client: LogClient, access: Access = OPEN) -> None:
    """Keep a client for the next task; it must have worked, and must no longer be in use."""
    key = os.getpid(), bootstrap, access
    if len(_idle) >= IDLE_CLIENTS_MAX or _idle.setdefault(key, client) is not client:
        client.close()
