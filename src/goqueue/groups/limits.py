"""Bounds that need no setting."""

from __future__ import annotations

# A new member cannot send heartbeats while its join waits, so the wait is bounded here.
NEW_MEMBER_JOIN_MS_MAX = 300_000
FAILED_WRITE_REST_MS = 1_000  # before a group whose write failed continues
RETENTION_CHECK_MS = 600_000
# How soon members that the broker assigns receive a new assignment: few members may poll often.
HEARTBEAT_MS_MIN = 500
HEARTBEAT_MS_PER_MEMBER = 10  # of one coordinator; it gets at most a hundred heartbeats a second
# A partition that changes owners is not read, so members that wait for one poll more often.
WAITING_HEARTBEAT_MS_MIN = 50
# An assignment processes every member, so in a large group changes are batched. The delay grows
# with the group: at most about a tenth of the time is spent on assignments.
ASSIGNED_AT_ONCE_MAX = 100  # members; smaller groups are assigned at every change
ASSIGNMENT_US_PER_MEMBER = 50
REBALANCE_HISTORY_MAX = 20  # finished rebalances remembered per group
REGEX_LENGTH_MAX = 1_024
REGEX_MEMORY_BYTES_MAX = 1 << 20
GROUP_ID_LENGTH_MAX = 8_000  # keys of records hold at most 32,767 bytes
MEMBER_ID_LENGTH_MAX = 8_000


def is_full(size: int, size_max: int) -> bool:
    """Whether a size has reached its bound; a negative bound means none."""
    return 0 <= size_max <= size
