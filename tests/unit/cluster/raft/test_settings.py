"""How long a quorum waits for its leader."""

from __future__ import annotations

import pytest

from goqueue.cluster.raft.settings import RaftSettings
from goqueue.config import ClusterSettings


def test_the_default_session_leaves_elections_as_they_are() -> None:
    assert RaftSettings.for_session(ClusterSettings().session_ms) == RaftSettings()


@pytest.mark.parametrize(("session_ms", "election_ms"), [(50, 1_000), (6_000, 3_000)])
def test_a_longer_session_waits_longer_for_a_silent_leader(
    session_ms: int, election_ms: int
) -> None:
    assert RaftSettings.for_session(session_ms).election_ms == election_ms
