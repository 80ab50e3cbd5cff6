"""What members and administrators ask of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from goqueue.groups.partitions import Partition

NO_GENERATION = -1
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A classic member enters the group, or comes back for the next generation."""

    group_id: str
    member_id: str = ""
    new_member_id: str = ""  # made by the caller; taken when the member has no id yet
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # the member's assignors, best first
    is_member_id_required: bool = False  # the client can join in two steps
    can_skip_assignment: bool = False  # the client knows the answer "leader, do not assign"


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    """A classic member asks for its assignment; the leader brings everybody's."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class LeavingMember(msgspec.Struct, frozen=True, kw_only=True):
    """Named by its member id, by its instance id, or by both."""

    member_id: str = ""
    instance_id: str | None = None


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    members: tuple[LeavingMember, ...]


class ConsumerHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """All that a member of the consumer protocol says; `None` means "as before".

    Epoch 0 joins, −1 leaves, −2 leaves for a restart under the same instance id.
    """

    group_id: str
    member_id: str  # made by the client, or by the caller for a client that brings none
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None  # "" ends a subscription by regular expression
    server_assignor: str | None = None
    owned: frozenset[Partition] | None = None


class OffsetToCommit(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class CommitOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """`generation` is the member epoch for members of the consumer protocol.

    Without member id and generation it is a simple commit, allowed while the group is empty.
    """

    group_id: str
    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None
    offsets: Sequence[OffsetToCommit] = ()
    retention_ms: int | None = None  # only old clients ask for a lifetime of their own

    @property
    def is_anonymous(self) -> bool:
        return self.generation < 0 and not self.member_id and self.instance_id is None
