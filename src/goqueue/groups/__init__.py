"""Membership, assignment and committed offsets of stream groups.

A stream group distributes the partitions of topics among its members and stores their committed
offsets. This room decides who owns what, when a silent member has failed, and which commits are
accepted. It holds no messages, computes no lag, and has of topics only name and partition count. It
never reads a clock, generates an id or waits: time and ids are arguments, and effects are returned.

One `Coordinator` owns all groups of one partition of `__consumer_offsets`. `classic` and `consumer`
have the two group protocols, `assignment` the assignors, `offset_commits` the committed offsets,
and `journal` holds replies back until the records that they depend on are durable.

**Loading.** `topics_changed(now_ms, topics)` with all topics, `replay(key, value)` for each record
of the partition, oldest first, then `loaded(now_ms)`. Until both have happened every call is
refused with `CoordinatorLoading`. `topics_changed` is called again, with all topics, whenever one
is created, extended or deleted; the offsets of a deleted topic are deleted with it.

**Calls.** `join`, `sync`, `heartbeat`, `leave` (classic members), `consumer_heartbeat` (members of
the consumer protocol), `offsets.commit`, `offsets.delete` and `delete_group` take a call, a `token`
and `now_ms`. They return effects, or raise the `GoQueueError` that is the response. The response to
a token is a `Reply`, at once or among the effects of any later call, exactly once.
`offsets.fetch`, `list_groups`, `describe_group` and `rebalances` return their results directly.

**Effects**, in this order: `Reply(token, result)` completes a waiting call with a result or an
error. `Persist(write_id, group_id, records)` appends the records as one batch; when they are
durable call `persisted(write_id, now_ms)`, when they are refused call
`persist_failed(write_id, error, now_ms)` with the retryable error for the waiting callers. Both
return effects. `Progress` reports a higher committed offset, if `reports_progress` is set. A group
has one write in flight at a time, so the order between writes does not matter. There is no undo to
perform: replies wait here until the records they depend on are durable, and a group whose
membership could not be written pauses, refusing calls with `CoordinatorLoading`, and then continues
from what the log holds.

**Transactions.** `offsets.commit` with an identity commits offsets that take effect when the open
transaction of that producer commits. Its `Persist` has the identity, with which the batch is marked
in the log; `ended(producer_id, is_commit, now_ms)` reports that the transaction's end is durable
there. When loading, `replay` takes the producer of such a batch, and `replay_end` its end.

**Time.** After any call, get `next_deadline_ms()` and call `tick(now_ms)` then.

**Resigning.** `resign(error)` completes all waiting calls; drop the coordinator afterwards.
"""

from goqueue.groups.assignment.assignors import (
    SERVER_ASSIGNORS,
    assign_range,
    assign_roundrobin,
    assign_sticky,
)
from goqueue.groups.assignment.partitions import Partition, Partitions, flatten, nest
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
from goqueue.groups.effects import Effect, KeyedRecord, Persist, Progress, Reply, Token
from goqueue.groups.group import GroupTimes
from goqueue.groups.metrics import Reason, Rebalance, RebalanceLog, RebalanceReport
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
    "Progress",
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
