"""The node itself: is it well, and which version is it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer


class Health(Answer, kw_only=True):
    """`ok`, or what is wrong."""

    status: Literal["ok", "degraded"]
    node_id: int
    cluster_id: str
    problems: list[str] = []


class Alive(Answer, kw_only=True):
    status: Literal["ok"] = "ok"


class Welcome(Answer, kw_only=True):
    """What answers here, and where to go on."""

    name: str = "GoQueue"
    version: str
    node_id: int
    cluster_id: str
    links: Annotated[dict[str, str], Meta(description="Pages of this node, by what they are.")]


class Version(Answer, kw_only=True):
    version: str
    python: str
    api: Annotated[str, Meta(description="The version of this HTTP API.")]
    node_id: int = -1
    cluster_id: Annotated[
        str, Meta(description="Empty while a new node does not know its cluster yet.")
    ] = ""
