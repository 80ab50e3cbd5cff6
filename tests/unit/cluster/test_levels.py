"""Decisions about the feature level of a cluster."""

from __future__ import annotations

import pytest

from goqueue.cluster.facts import ClusterFact, NodeFact, TopicFact
from goqueue.cluster.levels import finalized, first_level
from goqueue.cluster.metadata import Metadata
from goqueue.model.errors import InvalidRequest
from goqueue.model.support import LEVEL_MAX, LEVEL_MIN, SUPPORT, UNKNOWN, Support

VOTERS = (1, 2)
NONSENSE = Support(level_min=LEVEL_MAX + 1, level_max=LEVEL_MAX)


def formed(*supported: Support | None) -> Metadata:
    """A new cluster, with nodes that support these levels."""
    metadata = Metadata()
    metadata.apply(ClusterFact("cluster", formed_level=LEVEL_MAX))
    for number, support in enumerate(supported, 1):
        metadata.apply(NodeFact(number, bytes(16), support=support))
    return metadata


def test_a_new_cluster_gets_the_newest_level_that_its_nodes_share() -> None:
    assert first_level(formed(SUPPORT, SUPPORT), VOTERS) == LEVEL_MAX
    assert first_level(formed(SUPPORT, UNKNOWN), VOTERS) is None
    assert first_level(formed(SUPPORT), VOTERS) is None, "a voter is missing"


def test_a_cluster_that_clients_use_keeps_its_level() -> None:
    metadata = formed(SUPPORT, SUPPORT)
    metadata.apply(TopicFact(bytes(16), "orders", 1))
    assert first_level(metadata, VOTERS) is None


@pytest.mark.parametrize("claimed", [NONSENSE, Support(0, 0), Support(LEVEL_MAX + 1, 99)])
def test_levels_that_no_release_supports_stop_nothing(claimed: Support) -> None:
    metadata = formed(SUPPORT, claimed)
    level = first_level(metadata, VOTERS)
    assert level is None, "the controller would refuse to raise it, at each of its ticks"
    with pytest.raises(InvalidRequest, match="node 2"):
        finalized(metadata, LEVEL_MAX)
    assert metadata.level == LEVEL_MIN


def test_no_level_is_reached_that_the_controller_does_not_support() -> None:
    """Every node would stop when it applies it, for good."""
    metadata = formed(Support(LEVEL_MIN, LEVEL_MAX + 1))  # The controller itself is unregistered.
    with pytest.raises(InvalidRequest, match=f"level {LEVEL_MAX + 1} is not supported"):
        finalized(metadata, LEVEL_MAX + 1)


def test_a_level_that_was_raised_is_raised_again_by_a_retry() -> None:
    metadata = formed(SUPPORT, SUPPORT)
    metadata.apply_all(tuple(finalized(metadata, LEVEL_MAX)))  # type: ignore[arg-type]
    assert metadata.level == LEVEL_MAX
    assert finalized(metadata, LEVEL_MAX) == []
