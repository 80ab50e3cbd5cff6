"""The results that groups return."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from goqueue.groups.assignment.partitions import Partition
from goqueue.model.errors import GoQueueError
from goqueue.model.tenants import GroupName, Text, TopicName


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"


class Done(msgspec.Struct, frozen=True):
    """Success without further data: heartbeats and deletions."""


DONE = Done()


class JoinedMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: Text
    instance_id: Text | None
    metadata: bytes


class JoinResult(msgspec.Struct, frozen=True, kw_only=True):
    member_id: Text
    generation: int
    protocol_type: Text
    protocol_name: Text
    leader_id: Text
    members: tuple[JoinedMember, ...] = ()  # only for the leader
    is_assignment_skipped: bool = False


class SyncResult(msgspec.Struct, frozen=True, kw_only=True):
    protocol_type: Text
    protocol_name: Text
    assignment: bytes


class LeftMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: Text
    instance_id: Text | None
    error: GoQueueError | None = None


class LeaveResult(msgspec.Struct, frozen=True):
    members: tuple[LeftMember, ...]


class ConsumerHeartbeatResult(msgspec.Struct, frozen=True, kw_only=True):
    member_id: Text
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: frozenset[Partition] | None = None  # `None`: unchanged


class OffsetErrors(msgspec.Struct, frozen=True):
    """The outcome of a commit or deletion: partitions not listed here succeeded."""

    errors: dict[Partition, GoQueueError] = {}


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    offset: int
    leader_epoch: int = -1
    metadata: Text = ""
    committed_at_ms: int
    expires_at_ms: int = -1  # −1: by the retention of the group
    topic_id: bytes = b""  # of the topic that it is an offset of; empty if it is not known

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it is an offset of this topic, and not of an earlier one of the same name."""
        return not self.topic_id or self.topic_id == topic_id


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    type: GroupType
    state: GroupState
    protocol_type: str


class MemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A member as tools show it; classic members of a classic group have only bytes."""

    member_id: Text
    instance_id: Text | None
    rack_id: Text | None = None
    client_id: Text
    client_host: Text
    is_classic: bool
    epoch: int
    metadata: bytes = b""
    assignment: bytes = b""
    subscribed_topics: tuple[TopicName, ...] = ()
    subscribed_regex: Text = ""
    assigned: frozenset[Partition] = frozenset()
    target: frozenset[Partition] = frozenset()


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupName
    type: GroupType
    state: GroupState
    protocol_type: Text
    protocol_name: Text  # the assignor in use
    epoch: int
    assignment_epoch: int
    leader_id: Text = ""
    members: tuple[MemberDescription, ...] = ()
