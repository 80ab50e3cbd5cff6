"""The routes of the node itself; a part of the one table in `operations`."""

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
        "What this is, and where to go on.",
        area="node",
        is_early=True,
        answer=bodies.Welcome,
    ),
    Operation(
        "health",
        "GET",
        "/healthz",
        node.health,
        "Whether the node does all that it should.",
        area="node",
        is_early=True,
        answer=bodies.Health,
        other_answers={503: bodies.Health},
    ),
    Operation(
        "ready",
        "GET",
        "/readyz",
        node.ready,
        "Whether the node takes requests.",
        area="node",
        is_early=True,
        answer=bodies.Health,
        other_answers={503: bodies.Health},
    ),
    Operation(
        "alive",
        "GET",
        "/livez",
        node.alive,
        "Whether the process answers at all.",
        area="node",
        is_early=True,
        answer=bodies.Alive,
    ),
    Operation(
        "version",
        "GET",
        "/version",
        node.show_version,
        "Which version, node and cluster this is.",
        area="node",
        is_early=True,
        answer=bodies.Version,
    ),
    Operation(
        "openapi",
        "GET",
        "/openapi.json",
        node.document,
        "This document.",
        area="node",
        is_early=True,
        answer=dict[str, Any],
    ),
    Operation(
        "docs",
        "GET",
        "/docs",
        node.page,
        "Interactive documentation.",
        area="node",
        is_early=True,
        answer=bytes,
    ),
)
