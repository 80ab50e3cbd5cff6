"""Replication of one partition: progress of its replicas, and what is committed.

The leader takes the writes and tracks which followers have them; followers pull, and truncate what
the leader does not have. Decisions depend only on offsets and epochs, never on the clocks of two
nodes. This package only decides: `broker/replication` sends the messages and performs the effects.
"""

from goqueue.cluster.replication.following import (
    Append,
    Follow,
    FollowerLog,
    Following,
    Restart,
    Truncate,
    parked_ms,
)
from goqueue.cluster.replication.messages import (
    FetchStatus,
    FollowerNotice,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaReport,
    Served,
    decode_answers,
    decode_follower_notice,
    encode_answers,
    encode_follower_notice,
)
from goqueue.cluster.replication.pacing import (
    EXEMPT,
    NO_THROTTLE,
    Meter,
    Stragglers,
    TokenBucket,
)
from goqueue.cluster.replication.replica_set import (
    AdvanceHighWatermark,
    LeaderLog,
    ProposeInSync,
    ReplicaSet,
    SetShortage,
)

__all__ = [
    "EXEMPT",
    "NO_THROTTLE",
    "AdvanceHighWatermark",
    "Append",
    "FetchStatus",
    "Follow",
    "FollowerLog",
    "FollowerNotice",
    "Following",
    "LeaderLog",
    "Meter",
    "ProposeInSync",
    "ReplicaFetch",
    "ReplicaFetched",
    "ReplicaReport",
    "ReplicaSet",
    "Restart",
    "Served",
    "SetShortage",
    "Stragglers",
    "TokenBucket",
    "Truncate",
    "decode_answers",
    "decode_follower_notice",
    "encode_answers",
    "encode_follower_notice",
    "parked_ms",
]
