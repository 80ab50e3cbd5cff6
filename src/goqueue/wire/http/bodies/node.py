"""The node itself: its health, version and metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body


class Health(Answer, kw_only=True):
    """`ok`, or the problems."""

    status: Literal["ok", "degraded"]
    node_id: int
    cluster_id: str
    problems: list[str] = []


class Alive(Answer, kw_only=True):
    status: Literal["ok"] = "ok"


class Welcome(Answer, kw_only=True):
    """What this server is, with links to its pages."""

    name: str = "GoQueue"
    version: str
    node_id: int
    cluster_id: str
    links: Annotated[dict[str, str], Meta(description="Pages of this node, by name.")]


class Version(Answer, kw_only=True):
    version: str
    python: str
    api: Annotated[str, Meta(description="The version of this HTTP API.")]
    node_id: int = -1
    cluster_id: Annotated[
        str, Meta(description="Empty while a new node has not joined its cluster.")
    ] = ""


class MetricsDetails(Body, kw_only=True):
    """Which details of metrics to return."""

    family: Annotated[
        str,
        Meta(
            description="Families of details, separated by commas: partitions, groups, queues, "
            "lanes.",
            max_length=200,
            examples=["partitions,groups"],
        ),
    ]
