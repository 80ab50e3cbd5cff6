"""Processes that Spark keeps for its Python tasks, and what they keep from one task to the next."""

from __future__ import annotations

import gc
import os
import sys

from goqueue.client import LogClient
from goqueue.spark.connecting import connect_again

IDLE_CLIENTS_MAX = 4  # of different brokers; a process seldom reads from more than one

_DAEMON = "pyspark.daemon"
_idle: dict[
    tuple[int, str], LogClient
] = {}  # by process, because connections do not survive a fork
_settled: set[int] = set()


def settle_process() -> None:
    """Take what a worker of Spark has loaded by now out of the search for garbage.

    A worker searches all its memory after each task. Modules and classes, which is all there is
    between tasks, take some 40 ms to search and never become garbage. Processes that are not
    Spark's own are left alone.
    """
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name == _DAEMON and os.getpid() not in _settled:
        _settled.add(os.getpid())
        gc.freeze()


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
