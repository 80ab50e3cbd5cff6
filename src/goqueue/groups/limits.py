"""Bounds that nobody needs to set."""

from __future__ import annotations

# A new member cannot send heartbeats while its join waits, so its patience is bounded here.
NEW_MEMBER_JOIN_MS_MAX = 300_000
FAILED_WRITE_REST_MS = 1_000  # before a group whose write failed is tried again
RETENTION_CHECK_MS = 600_000
# How soon members that the broker assigns hear of a new assignment: few of them can ask often.
HEARTBEAT_MS_MIN = 500
HEARTBEAT_MS_PER_MEMBER = 10  # of one coordinator; it gets at most a hundred heartbeats a second
# While partitions change hands nobody reads them, so those who wait for some ask more often.
WAITING_HEARTBEAT_MS_MIN = 50
# An assignment looks at every member, so in a large group the changes of a while share one. The
# pause grows with the group: about a tenth of the time is spent on assignments at most.
ASSIGNED_AT_ONCE_MAX = 100  # members; smaller groups are assigned at every change
ASSIGNMENT_US_PER_MEMBER = 50
REBALANCE_HISTORY_MAX = 20  # finished rebalances remembered per group
REGEX_LENGTH_MAX = 1_024
REGEX_MEMORY_BYTES_MAX = 1 << 20
GROUP_ID_LENGTH_MAX = 8_000  # keys of records hold at most 32,767 bytes
MEMBER_ID_LENGTH_MAX = 8_000


def is_full(size: int, size_max: int) -> bool:
    """A negative bound is none."""
    return 0 <= size_max <= size
