"""Connections of drivers and tasks to the brokers."""

from __future__ import annotations

import time

from goqueue.client import ClientSettings, LogClient, Unreachable
from goqueue.client.http.settings import HttpSettings, RetrySettings, base_url
from goqueue.spark.access import OPEN, Access

# A broker restart must not end a query: Spark fails a local task at its first error.
PATIENCE_MS = 120_000
METADATA_AGE_MS = 1_000  # how soon a stream discovers new partitions and topics
# Responses waiting for a task, the one it is processing, and the one being received.
BUFFERS_KEPT_MAX = 5
_WAIT_S = 0.5


def connect(bootstrap: str, access: Access = OPEN) -> LogClient:
    """Return a client for a driver, which fails at once if the address does not respond."""
    return LogClient(
        bootstrap,
        ClientSettings(
            client_id="goqueue-spark",
            retry_ms_max=PATIENCE_MS,
            metadata_age_ms_max=METADATA_AGE_MS,
            buffers_kept_max=BUFFERS_KEPT_MAX,
            tls=access.tls,
            sasl=access.sasl,
        ),
    )


def connect_again(bootstrap: str, access: Access = OPEN) -> LogClient:
    """Return a client for a task. The driver has reached this address, so the client retries it."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        client = connect(bootstrap, access)
        try:
            client.cluster.nodes()
        except Unreachable:
            client.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(_WAIT_S)
        else:
            return client


def http_settings(access: Access, retry: RetrySettings) -> HttpSettings:
    """Return the settings of clients of the HTTP API and of registries."""
    return HttpSettings(retry=retry, login=access.login, tls=access.tls)


def http_url(address: str, access: Access) -> str:
    """Return the URL of the HTTP API, which is encrypted if the address does not tell otherwise."""
    return base_url(address, is_encrypted=access.tls is not None)
