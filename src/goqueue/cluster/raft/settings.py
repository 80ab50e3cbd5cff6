"""Time-outs and limits of the quorum."""

from __future__ import annotations

from dataclasses import dataclass

KiB = 1 << 10
MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class RaftSettings:
    heartbeat_ms: int = 100  # several must fit into `election_ms`, since some get lost
    election_ms: int = 1_000  # silence of the leader before an election; up to twice this
    # Maximum random delay before an election when the leader was found to be gone. The last node to
    # notice wins with the votes of the others; two nodes should rarely stand at the same moment.
    gone_ms: int = 150
    append_bytes_max: int = 256 * KiB  # per message; a larger entry is sent on its own
    append_entries_max: int = 1_024
    appends_in_flight_max: int = 16  # unacknowledged messages with entries per follower
    snapshot_chunk_bytes: int = 256 * KiB
    snapshot_bytes_max: int = 256 * MiB  # held in memory while it is sent and received
    payload_bytes_max: int = 8 * MiB
    uncommitted_bytes_max: int = 64 * MiB  # beyond it, proposals are refused
    reads_waiting_max: int = 10_000
    entries_kept: int = 1_000  # behind a snapshot, for followers that are only slightly behind
    committed_entries_max: int = 1_000  # handed out at once, so that applying them stays short
    promotion_lag_max: int = 1_000  # entries that a learner may lack when it becomes a voter
    voters_max: int = 9  # more slow down every commit without surviving more likely failures

    @classmethod
    def for_session(cls, session_ms: int) -> RaftSettings:
        """Return settings that fit the session time-out of nodes.

        With a longer session nodes may pause for longer, and so may the leader of the quorum: a
        shorter election time-out would replace a controller that is only slow.
        """
        return cls(election_ms=max(cls().election_ms, session_ms // 2))

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ms < self.election_ms
        assert self.gone_ms > 0
        assert self.appends_in_flight_max > 0
        assert self.snapshot_chunk_bytes > 0
        assert self.append_entries_max > 0
        assert self.committed_entries_max > 0
