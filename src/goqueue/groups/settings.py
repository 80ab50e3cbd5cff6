"""The bounds and waiting times of stream groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    members_max: int = 10_000  # per group; beyond it a join is refused
    initial_rebalance_delay_ms: int = 100  # lets the members of a starting service join together
    rebalance_history_max: int = 20  # finished rebalances remembered per group

    # Classic members bring their own time-outs.
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    # A new member cannot send heartbeats while its join waits, so its patience is bounded here.
    new_member_join_timeout_ms: int = 300_000

    # Members of the consumer protocol are told theirs.
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    subscribed_regex_length_max: int = 1_024
    server_assignor: str = "uniform"  # for groups whose members prefer none

    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000  # counted from the moment a group is empty
    offsets_retention_check_ms: int = 600_000
