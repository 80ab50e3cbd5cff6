"""Members of share groups: how they join, and how they are described."""

from __future__ import annotations

import msgspec

from goqueue.model.tenants import GroupName, Text, TopicName

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


class ShareHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    """A member joins, stays in, or leaves a group."""

    group_id: GroupName
    member_id: Text
    member_epoch: int
    rack_id: Text | None = None
    subscribed_topics: tuple[TopicName, ...] | None = None  # None: as before
    client_id: Text = ""
    client_host: Text = ""


class ShareHeartbeatResult(msgspec.Struct, frozen=True, array_like=True):
    """The epoch of a member, and its partitions if they have changed."""

    member_id: Text
    member_epoch: int
    heartbeat_ms: int
    assignment: frozenset[tuple[TopicName, int]] | None = None


class ShareMemberDescription(msgspec.Struct, frozen=True, array_like=True):
    """A member of a share group."""

    member_id: Text
    member_epoch: int
    rack_id: Text | None
    client_id: Text
    client_host: Text
    subscribed_topics: tuple[TopicName, ...]
    assigned: frozenset[tuple[TopicName, int]]


class ShareGroupDescription(msgspec.Struct, frozen=True, array_like=True):
    """A share group, with its members."""

    group_id: GroupName
    state: Text  # Empty or Stable
    epoch: int
    assignor: Text = "simple"
    members: tuple[ShareMemberDescription, ...] = ()
