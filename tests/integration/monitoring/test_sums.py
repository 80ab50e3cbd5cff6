"""Counters of a cluster under load: their sums over the nodes are what clients counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue import Client
from goqueue.client.http import Sample
from tests.integration.cluster import Cluster
from tests.integration.rpc.calls import LISTENER
from tests.integration.waiting import POLL_SECONDS

from .asked import OF_CLUSTERS, wanted
from .clients import prepare, run
from .ledger import Ledger, compared, sums_of

SECONDS = 8.0
SETTLE_SECONDS_MAX = 10.0
MIN_COUNTERS = 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes with listeners of every kind."""
    cluster = Cluster(tmp_path, settings=LISTENER)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def scrapes(cluster: Cluster) -> list[list[Sample]]:
    found = []
    for node in cluster.nodes.values():
        with Client(node.http) as client:
            found.append(client.node.metrics())
    return found


def differences(cluster: Cluster, ledger: Ledger) -> list[str]:
    """The counters whose sums over the nodes are not what clients counted."""
    sums = sums_of(scrapes(cluster))
    return [str(one) for one in compared(ledger, sums) if not one.agrees]


@pytest.mark.slow
def test_sums_over_the_nodes_are_what_clients_counted(cluster: Cluster) -> None:
    prepare(cluster)
    ledger = run(cluster, SECONDS)
    assert ledger.failures == []
    assert len(ledger.counts) >= MIN_COUNTERS
    names = {one.name for scrape in scrapes(cluster) for one in scrape}
    assert {name for name in wanted() if name.startswith(OF_CLUSTERS)} <= names
    # A release is counted when its end is committed, which may be after readers have it.
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while (wrong := differences(cluster, ledger)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    assert wrong == []
