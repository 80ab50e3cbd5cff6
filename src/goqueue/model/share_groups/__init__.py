"""Share groups: what members that settle records by offset send and receive.

Such a group is a queue group whose members read partitions from their leaders.
"""

from goqueue.model.share_groups.members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResult,
    ShareMemberDescription,
)
from goqueue.model.share_groups.records import (
    NOT_STARTED,
    UNKNOWN_LAG,
    AckBatch,
    AckType,
    AcquiredRange,
    PartitionOutcome,
    ShareAcknowledge,
    ShareAcks,
    ShareExchange,
    ShareFetch,
    ShareLeased,
    ShareOffset,
    ShareUnsent,
    ShareWanted,
)

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "NOT_STARTED",
    "UNKNOWN_LAG",
    "AckBatch",
    "AckType",
    "AcquiredRange",
    "PartitionOutcome",
    "ShareAcknowledge",
    "ShareAcks",
    "ShareExchange",
    "ShareFetch",
    "ShareGroupDescription",
    "ShareHeartbeat",
    "ShareHeartbeatResult",
    "ShareLeased",
    "ShareMemberDescription",
    "ShareOffset",
    "ShareUnsent",
    "ShareWanted",
]
