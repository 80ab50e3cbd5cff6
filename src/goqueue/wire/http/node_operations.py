"""The routes of the node itself; part of the table in `operations`."""

from __future__ import annotations

from typing import Any

from goqueue.model import errors
from goqueue.wire.carrier.routing import Operation
from goqueue.wire.http.bodies import node as bodies
from goqueue.wire.http.handlers import metrics, node

_FORMATS = ("text/plain", "application/openmetrics-text")

NODE = (
    Operation(
        "welcome",
        "GET",
        "/",
        node.welcome,
        "Show what this server is, with links to its pages; in a browser, the web console.",
        area="node",
        is_early=True,
        has_public_page=True,
        answer=bodies.Welcome,
    ),
    Operation(
        "health",
        "GET",
        "/healthz",
        node.health,
        "Show whether the node is healthy.",
        area="node",
        is_early=True,
        is_open=True,
        answer=bodies.Health,
        other_answers={503: bodies.Health},
    ),
    Operation(
        "ready",
        "GET",
        "/readyz",
        node.ready,
        "Show whether the node is ready: it serves requests, and was in sync since its start.",
        area="node",
        is_early=True,
        is_open=True,
        answer=bodies.Health,
        other_answers={503: bodies.Health},
    ),
    Operation(
        "alive",
        "GET",
        "/livez",
        node.alive,
        "Show whether the process is alive.",
        area="node",
        is_early=True,
        is_open=True,
        answer=bodies.Alive,
    ),
    Operation(
        "version",
        "GET",
        "/version",
        node.show_version,
        "Show the version, the node and the cluster.",
        area="node",
        is_early=True,
        answer=bodies.Version,
    ),
    Operation(
        "openapi",
        "GET",
        "/openapi.json",
        node.document,
        "Return this OpenAPI document.",
        area="node",
        is_early=True,
        answer=dict[str, Any],
    ),
    Operation(
        "docs",
        "GET",
        "/docs",
        node.page,
        "Show the interactive documentation.",
        area="node",
        is_early=True,
        answer=bytes,
    ),
    Operation(
        "metrics",
        "GET",
        "/metrics",
        metrics.scrape,
        "Return the metrics of this node, by topic and by group, for Prometheus.",
        area="node",
        answer=bytes,
        media_types=_FORMATS,
        errors=(errors.MetricsDisabled, errors.RequestTimedOut),
        is_early=True,
        is_waiting=True,
        are_metrics=True,
    ),
    Operation(
        "detailed_metrics",
        "GET",
        "/metrics/detailed",
        metrics.scrape_details,
        "Return details that have a series for each partition or lane.",
        area="node",
        request=bodies.MetricsDetails,
        answer=bytes,
        media_types=_FORMATS,
        errors=(errors.InvalidRequest, errors.MetricsDisabled, errors.RequestTimedOut),
        is_early=True,
        is_waiting=True,
        are_metrics=True,
    ),
)
