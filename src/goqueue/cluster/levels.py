"""Decisions about the feature level of a cluster: what its nodes support, and when it is raised."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from goqueue.cluster.facts import Change, NodeFact
from goqueue.cluster.metadata import Metadata
from goqueue.model.errors import InvalidRequest, UnsupportedVersion
from goqueue.model.names import INTERNAL_TOPICS
from goqueue.model.support import SUPPORT, UNKNOWN, Support, common_level


def support_of(fact: NodeFact) -> Support:
    """Return what a node supports, as it has registered."""
    return fact.support or UNKNOWN


def check_node(metadata: Metadata, node: int, support: Support | None) -> None:
    """Refuse a node that cannot use the logs of this cluster."""
    known, cluster = support or UNKNOWN, metadata.cluster
    if cluster is not None and not known.has_level(cluster.feature_level):
        raise UnsupportedVersion(
            f"Node {node} supports {known.levels}, and the cluster uses feature level "
            f"{cluster.feature_level}; run a release on it that supports this level."
        )


def finalized(metadata: Metadata, level: int, own: Support = SUPPORT) -> list[Change]:
    """Raise the feature level, which cannot be undone; refuse if a registered node lacks it.

    Nodes that are down count too: they could not return. `own` is what the controller supports.
    """
    cluster = metadata.cluster
    if cluster is None or level == cluster.feature_level:
        return []
    if level < cluster.feature_level:
        raise InvalidRequest(
            f"The cluster uses feature level {cluster.feature_level}, and a level is never lowered."
        )
    nodes = sorted(metadata.nodes.values(), key=lambda one: one.id)
    behind = [
        f"node {one.id} ({support_of(one).release or 'an older release'}, {support_of(one).levels})"
        for one in nodes
        if not support_of(one).has_level(level)
    ]
    if behind:
        raise InvalidRequest(
            f"Feature level {level} is not supported by {', '.join(behind)}. Upgrade them, or "
            "unregister those that are gone for good."
        )
    if not own.has_level(level):
        raise InvalidRequest(
            f"Feature level {level} is not supported by the controller ({own.levels}); upgrade "
            "all nodes first."
        )
    return [msgspec.structs.replace(cluster, feature_level=level)]


def first_level(metadata: Metadata, voters: Collection[int]) -> int | None:
    """Return the level of a new cluster once it is known; None before, and for any other cluster.

    A cluster is new until a client has created something in it, however late a voter comes.
    """
    cluster, nodes = metadata.cluster, metadata.nodes
    if cluster is None or cluster.formed_level <= cluster.feature_level:
        return None
    is_used = metadata.queue_groups or any(
        one.name not in INTERNAL_TOPICS for one in metadata.topics()
    )
    if is_used or not nodes.keys() >= set(voters):
        return None
    supported = [support_of(one) for one in nodes.values()]
    level = min(cluster.formed_level, common_level(supported))
    # Also of what a node claims that cannot be, such as levels 3 to 2.
    is_shared = all(one.has_level(level) for one in supported)
    return level if is_shared and level > cluster.feature_level else None
