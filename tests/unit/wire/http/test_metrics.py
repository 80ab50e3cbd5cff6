"""Metrics over HTTP: formats, details, credentials, and clients that hang up."""

from __future__ import annotations

import pytest

from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.session import Session
from goqueue.wire.http.handlers.metrics import preferred_format
from tests.simulation.world import World
from tests.unit.wire.carrier.test_authentication import STRICT, Desk, basic
from tests.unit.wire.http.client import Client, request
from tests.unit.wire.measured import requests_of

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# What Prometheus 2.42 and 3 send.
SCRAPER = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
SCRAPER_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,/;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "text_format"),
    [
        ("", "prometheus"),
        ("*/*", "prometheus"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "prometheus"),
        ("text/plain", "prometheus"),
        ("application/json", "prometheus"),
        (SCRAPER, "openmetrics"),
        (SCRAPER_3, "openmetrics"),
        ("application/openmetrics-text", "openmetrics"),
        ("application/openmetrics-text;version=2.0.0", "prometheus"),
        ("application/openmetrics-text;q=0.1, text/plain;q=0.9", "prometheus"),
        ("application/openmetrics-text;q=0", "prometheus"),
        ("application/openmetrics-text;q=nonsense", "prometheus"),
        (",;=,;q", "prometheus"),
        ("APPLICATION/OPENMETRICS-TEXT; Version=1.0.0", "openmetrics"),
    ],
)
def test_the_client_chooses_the_format(accept: str, text_format: str) -> None:
    assert preferred_format(accept.encode()) == text_format


def test_both_formats_are_served_with_their_types(client: Client) -> None:
    plain = client.send("GET", "/metrics")
    assert (plain.status, plain.headers["content-type"]) == (200, PROMETHEUS)
    assert b"goqueue_node_ready 1\n" in plain.body
    assert b"# EOF" not in plain.body
    opened = client.send("GET", "/metrics", headers={"accept": SCRAPER})
    assert (opened.status, opened.headers["content-type"]) == (200, OPENMETRICS)
    assert opened.body.endswith(b"# EOF\n")


@pytest.mark.parametrize("journeys", ["true", "false"])
def test_metrics_can_be_switched_off(journeys: str) -> None:
    client = Client(World(metrics__enabled="false", journeys__enabled=journeys))
    client.world.create("orders", 1)
    publish = "/v1/topics/orders/publish"
    assert client.send("POST", publish, {"value": "x"}).json["offset"] == 0
    assert len(client.get("/v1/topics/orders/messages")["messages"]) == 1
    for path in ("/metrics", "/metrics/detailed?family=partitions"):
        refused = client.refused("GET", path)
        assert (refused.status, refused.json["code"]) == (404, "metrics_disabled")
        assert "metrics.enabled" in refused.json["detail"]
    assert not requests_of(client.world.broker, "http")


def test_details_are_served_by_family(client: Client) -> None:
    client.post("/v1/topics/orders/publish", {"value": "a"})
    whole = client.send("GET", "/metrics").body
    assert b"goqueue_storage_log_bytes{" in whole
    assert b"goqueue_partition_log_bytes{" not in whole
    details = client.send("GET", "/metrics/detailed?family=partitions").body
    assert b'goqueue_partition_end_offset{topic="orders",partition="0"} 1\n' in details
    assert b"goqueue_storage_log_bytes{" not in details
    assert client.send("GET", "/metrics/detailed?family=lanes").body == b""
    both = client.send("GET", "/metrics/detailed?family=partitions,%20lanes,partitions").body
    assert both == details


@pytest.mark.parametrize("query", ["", "?family=", "?family=nothing", "?family=partitions,x"])
def test_unknown_families_are_refused(client: Client, query: str) -> None:
    refused = client.refused("GET", f"/metrics/detailed{query}")
    assert refused.status == 400


def test_head_has_the_length_and_no_text(client: Client) -> None:
    wire = client.wire()
    wire.feed(request("HEAD", "/metrics"))
    client.world.run_until(lambda: b"\r\n\r\n" in wire.sent)
    head, _, body = bytes(wire.sent).partition(b"\r\n\r\n")
    assert b"content-type: text/plain; version=0.0.4" in head
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    assert length > 1000
    assert body == b""


def test_a_scraper_that_hangs_up_does_not_disturb_the_next(client: Client) -> None:
    for number in range(30):
        client.post("/v1/topics", {"name": f"topic{number}", "partitions": 10})
    wire = client.wire()
    wire.feed(request("GET", "/metrics"))
    assert not wire.answers
    wire.close()
    client.world.run_for(100)
    assert not wire.answers
    assert client.send("GET", "/metrics").status == 200
    assert client.world.broker.measuring.scraper.waiting == 0


def test_metrics_need_credentials_unless_they_are_open() -> None:
    strict = Desk(STRICT)
    for path in ("/metrics", "/metrics/detailed?family=partitions"):
        assert strict.get(path).status == 401
        assert strict.get(path, authorization=basic()).status == 200


def test_open_metrics_check_the_credentials_that_are_sent() -> None:
    open_desk = Desk(STRICT, security__open_metrics="true")
    open_desk.client.application.open_to((), is_health_open=True, are_metrics_open=True)
    assert open_desk.get("/metrics").status == 200
    assert open_desk.get("/metrics/detailed?family=partitions").status == 200
    assert open_desk.get("/metrics", authorization=basic("alice", "wrong")).status == 401
    assert open_desk.get("/version").status == 401


class DeniesAll:
    """A policy without rules."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return False

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        return False


@pytest.mark.parametrize(("is_open", "status"), [("false", 403), ("true", 200)])
def test_metrics_need_the_right_to_describe_the_cluster(is_open: str, status: int) -> None:
    desk = Desk(STRICT, security__open_metrics=is_open)
    desk.world.broker.gate.policy = DeniesAll()
    assert desk.get("/metrics", authorization=basic()).status == status


def test_the_start_page_leads_to_them(client: Client) -> None:
    assert client.get("/")["links"]["metrics"] == "/metrics"


def test_the_document_says_that_the_answer_is_text(client: Client) -> None:
    operation = client.get("/openapi.json")["paths"]["/metrics"]["get"]
    kinds = ["text/plain", "application/openmetrics-text"]
    assert list(operation["responses"]["200"]["content"]) == kinds
