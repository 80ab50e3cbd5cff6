"""What rules and boards name is exported, by a node that did work of every kind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.client.http import Sample
from goqueue.metrics.catalogue import CATALOGUE
from tests.integration.otlp_receiver import Receiver
from tests.integration.traces_receiver import TracesReceiver
from tests.integration.waiting import POLL_SECONDS
from tests.unit.monitoring.queries import SCRAPED, series_of
from tools.monitoring.programs import find

from .asked import OF_CLUSTERS, wanted
from .work import GROUP, TENANT_PASSWORD, TENANT_USER, BusyNode, Reporters, work

OF_JAVA_CLIENTS = {"goqueue_client_consumer_lag_max_messages"}  # librdkafka does not report it
REPORT_SECONDS_MAX = 20.0  # clients report every second
pytestmark = pytest.mark.single_node("one node can do all of it")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyNode]:
    with Receiver() as collector, TracesReceiver() as traces:
        made = BusyNode(
            tmp_path_factory.mktemp("busy"), metrics=collector.address, traces=traces.address
        )
        try:
            made.start()
            work(made)
            yield made
        finally:
            made.close()


def samples(node: BusyNode) -> list[Sample]:
    with node.client() as client:
        return client.node.metrics()


def test_rules_and_boards_name_what_a_node_exports(node: BusyNode) -> None:
    here = {name for name in wanted() if not name.startswith(OF_CLUSTERS)}
    here -= OF_JAVA_CLIENTS
    reporters = Reporters(node)

    def missing() -> list[str]:
        reporters.work()
        return sorted(here - {one.name for one in samples(node)})

    try:
        deadline = time.monotonic() + REPORT_SECONDS_MAX
        while (names := missing()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    finally:
        reporters.close()
    assert names == []


def test_a_node_exports_nothing_but_the_catalogue_with_its_labels(node: BusyNode) -> None:
    known = {
        name: frozenset(metric.labels) | ({"le"} if name.endswith("_bucket") else set())
        for metric in CATALOGUE.values()
        for name in series_of(metric)
    }
    for one in samples(node):
        assert {label for label, _ in one.labels} == known[one.name], one.name
        assert not {label for label, _ in one.labels} & SCRAPED


def test_promtool_has_no_complaint(node: BusyNode, tmp_path: Path) -> None:
    promtool = find("promtool")
    assert promtool is not None, "run `make prometheus`, or install Prometheus"
    with node.as_admin() as api:
        text = api.get("/metrics").content
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()


def test_top_shows_a_tenant_its_own_topics_under_plain_names(node: BusyNode) -> None:
    login = {"GOQUEUE_USER": TENANT_USER, "GOQUEUE_PASSWORD": TENANT_PASSWORD}
    tree = node.cli_json("top", "--once", "-i", "500ms", **login)
    assert [row["topic"] for row in tree["topics"]] == ["orders"]
    assert [row["group"] for row in tree["queues"]] == [GROUP]
