"""Membership, assignment and committed offsets of stream groups.

A stream group shares the partitions of topics among its members and remembers how far they read.
This room decides who owns what, when a silent member is gone, and whose commit counts. It keeps
no messages, computes no lag, and knows topics only by name and partition count. It never reads a
clock, makes an id or waits: time and ids are arguments, and what shall happen is returned.

One `Coordinator` owns all groups of one partition of `__consumer_offsets`.

**Loading.** `topics_changed(now_ms, topics)` with all topics, `replay(key, value)` for each record
of the partition, oldest first, then `loaded(now_ms)`. Until both have happened every call is
refused with `CoordinatorLoading`. `topics_changed` is called again, with all topics, whenever one
is created, grows or is deleted; the offsets of a deleted topic go with it.

**Calls.** `join`, `sync`, `heartbeat`, `leave` (classic members), `consumer_heartbeat` (members
the server assigns), `commit_offsets`, `delete_offsets` and `delete_group` take a call, a `token`
and `now_ms`. They return effects, or raise the `GoQueueError` that is the answer. The answer to a
token comes as a `Reply`, at once or with the effects of any later call, exactly once.
`fetch_offsets`, `list_groups`, `describe_group` and `rebalances` answer directly.

**Effects**, in this order: `Reply(token, result)` answers a waiting call with a result or an
error. `Persist(write_id, group_id, records)` appends the records as one batch; when they are
durable call `persisted(write_id, now_ms)`, when they are refused call
`persist_failed(write_id, error, now_ms)` with the retryable error that the waiting callers shall
see. Both return effects. A group has one write under way at a time, so the order between writes
does not matter. There is no undo to perform: answers wait here until the records they speak of
are durable, and a group whose membership could not be written rests, refusing calls with
`CoordinatorLoading`, and then goes on from what the log holds.

**Transactions.** `commit_offsets` with an identity commits offsets that count when the open
transaction of that producer does. Its `Persist` names the identity, and the batch is marked so in
the log; `ended(producer_id, is_commit, now_ms)` tells that the transaction's end is durable there.
When loading, `replay` names the producer of such a batch, and `replay_end` its end.

**Time.** After any call, ask `next_deadline_ms()` and call `tick(now_ms)` then.

**Resigning.** `resign(error)` answers everybody who waits; drop the coordinator afterwards.
"""

from goqueue.groups.assignors import (
    SERVER_ASSIGNORS,
    assign_range,
    assign_roundrobin,
    assign_sticky,
)
from goqueue.groups.calls import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    CommitOffsets,
    ConsumerHeartbeat,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Sync,
)
from goqueue.groups.coordinator import Coordinator
from goqueue.groups.effects import Effect, KeyedRecord, Persist, Reply, Token
from goqueue.groups.group import GroupTimes
from goqueue.groups.metrics import Reason, Rebalance, RebalanceLog, RebalanceReport
from goqueue.groups.partitions import Partition, Partitions, flatten, nest
from goqueue.groups.results import (
    DONE,
    CommittedOffset,
    ConsumerHeartbeatResult,
    Done,
    GroupDescription,
    GroupState,
    GroupSummary,
    GroupType,
    JoinedMember,
    JoinResult,
    LeaveResult,
    LeftMember,
    MemberDescription,
    OffsetErrors,
    SyncResult,
)

__all__ = [
    "DONE",
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "SERVER_ASSIGNORS",
    "STATIC_LEAVE_EPOCH",
    "CommitOffsets",
    "CommittedOffset",
    "ConsumerHeartbeat",
    "ConsumerHeartbeatResult",
    "Coordinator",
    "Done",
    "Effect",
    "GroupDescription",
    "GroupState",
    "GroupSummary",
    "GroupTimes",
    "GroupType",
    "Heartbeat",
    "Join",
    "JoinResult",
    "JoinedMember",
    "KeyedRecord",
    "Leave",
    "LeaveResult",
    "LeavingMember",
    "LeftMember",
    "MemberDescription",
    "OffsetErrors",
    "OffsetToCommit",
    "Partition",
    "Partitions",
    "Persist",
    "Reason",
    "Rebalance",
    "RebalanceLog",
    "RebalanceReport",
    "Reply",
    "Sync",
    "SyncResult",
    "Token",
    "assign_range",
    "assign_roundrobin",
    "assign_sticky",
    "flatten",
    "nest",
]
