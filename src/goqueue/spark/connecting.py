"""Connections of drivers and tasks to the brokers."""

from __future__ import annotations

import time

from goqueue.client import ClientSettings, LogClient, Unreachable

# A broker that restarts must not end a query: Spark gives up a local task at its first error.
PATIENCE_MS = 120_000
METADATA_AGE_MS = 1_000  # a stream notices new partitions and topics so soon
# Answers that wait for a task, the one it works on, and the one that is being received.
BUFFERS_KEPT_MAX = 5
_WAIT_S = 0.5


def connect(bootstrap: str) -> LogClient:
    """A client for a driver. An address at which nobody answers is an error at once."""
    return LogClient(
        bootstrap,
        ClientSettings(
            client_id="goqueue-spark",
            retry_ms_max=PATIENCE_MS,
            metadata_age_ms_max=METADATA_AGE_MS,
            buffers_kept_max=BUFFERS_KEPT_MAX,
        ),
    )


def connect_again(bootstrap: str) -> LogClient:
    """A client for a task. The driver has spoken to this address, so it is worth waiting for."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        client = connect(bootstrap)
        try:
            client.cluster.nodes()
        except Unreachable:
            client.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_WAIT_S)
        else:
            return client
