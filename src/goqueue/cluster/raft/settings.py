"""How the quorum behaves in time, and how much it holds at most."""

from __future__ import annotations

from dataclasses import dataclass

KiB = 1 << 10
MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class RaftSettings:
    heartbeat_ms: int = 100  # several must fit into `election_ms`, since some get lost
    election_ms: int = 1_000  # silence of the leader before another is sought, up to twice this
    # At most, before another is sought when the leader is known to be gone. Whoever notices last
    # wins with the consent of the others; they should rarely try at the very same moment.
    gone_ms: int = 150
    append_bytes_max: int = 256 * KiB  # of one message; a single larger entry goes alone
    append_entries_max: int = 1_024
    appends_in_flight_max: int = 16  # messages with entries that one follower has not answered
    snapshot_chunk_bytes: int = 256 * KiB
    snapshot_bytes_max: int = 256 * MiB  # it is held in memory while it is sent and received
    payload_bytes_max: int = 8 * MiB
    uncommitted_bytes_max: int = 64 * MiB  # then proposals are refused until a majority answers
    reads_waiting_max: int = 10_000
    entries_kept: int = 1_000  # behind a snapshot, for followers that are only a little late
    committed_entries_max: int = 1_000  # handed out at once, so that applying them stays short
    promotion_lag_max: int = 1_000  # entries that a learner may lack when it becomes a voter
    voters_max: int = 9  # more make every commit slower and no failure more survivable

    @classmethod
    def for_session(cls, session_ms: int) -> RaftSettings:
        """Return settings for nodes that are missed after a session.

        A longer session says that nodes may pause for longer, and so may a leader of the quorum:
        elections that it does not wait for would replace a controller that is only slow.
        """
        return cls(election_ms=max(cls().election_ms, session_ms // 2))

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ms < self.election_ms
        assert self.gone_ms > 0
        assert self.appends_in_flight_max > 0
        assert self.snapshot_chunk_bytes > 0
        assert self.append_entries_max > 0
        assert self.committed_entries_max > 0
