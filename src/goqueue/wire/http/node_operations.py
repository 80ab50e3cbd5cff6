"""The routes of the node itself; part of the table in `operations`."""

from __future__ import annotations

from typing import Any

from goqueue.wire.carrier.routing import Operation
from goqueue.wire.http.bodies import node as bodies
from goqueue.wire.http.handlers import node

NODE = (
    Operation(
        "welcome",
        "GET",
        "/",
        node.welcome,
        "Show what this server is, with links to its pages.",
        area="node",
        is_early=True,
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
        "Show whether the node is ready for requests.",
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
)
