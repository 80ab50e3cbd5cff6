"""Copies of one partition on several nodes: who has what, and what that allows.

The leader takes the writes and counts which followers have them; followers pull, and cut off what
the leader does not have. Decisions are made here from offsets and epochs alone, never from two
nodes' clocks. Nothing here knows the network: messages are values, and whoever calls sends them.
"""

from goqueue.cluster.replication.copying import Copying
from goqueue.cluster.replication.following import (
    Append,
    Follow,
    FollowerLog,
    Following,
    Restart,
    Truncate,
)
from goqueue.cluster.replication.leading import Leading
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
    ProposeInSync,
    ReplicaSet,
    SetShortage,
)

__all__ = [
    "EXEMPT",
    "NO_THROTTLE",
    "AdvanceHighWatermark",
    "Append",
    "Copying",
    "FetchStatus",
    "Follow",
    "FollowerLog",
    "FollowerNotice",
    "Following",
    "Leading",
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
]
