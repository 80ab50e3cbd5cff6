"""One group: its membership, its committed offsets, and its pending writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from goqueue.config import GroupSettings
from goqueue.groups.assignment.partitions import Partition
from goqueue.groups.calls import CommitOffsets, Heartbeat, Join, Leave, Sync
from goqueue.groups.effects import Progress, Reply, Token
from goqueue.groups.journal import NO_WRITE, Journal, Write
from goqueue.groups.limits import REBALANCE_HISTORY_MAX
from goqueue.groups.metrics import Rebalance, RebalanceLog
from goqueue.groups.offsets import OffsetChange, Offsets, PendingOffsets
from goqueue.groups.records import (
    GroupRecord,
    MemberRecord,
    decode_group,
    decode_member,
    encode_group_key,
    encode_member_key,
    encode_membership,
)
from goqueue.groups.results import GroupDescription, GroupState, GroupType
from goqueue.groups.timers import Timers
from goqueue.model.errors import GoQueueError


@dataclass(slots=True)
class CoordinatorContext:
    """What the groups of one coordinator share."""

    settings: GroupSettings
    timers: Timers = field(default_factory=Timers)
    journal: Journal = field(default_factory=Journal)
    topics: dict[str, int] = field(default_factory=dict)  # partition counts
    # Timeouts of groups that override the defaults; the creator of the coordinator may change it.
    times: Mapping[str, GroupTimes] = field(default_factory=dict)
    # Called with the group of every rebalance that ends.
    rebalanced: Callable[[str, Rebalance], None] = lambda group_id, rebalance: None


class GroupTimes(NamedTuple):
    """The timeouts of one group; None leaves the node's setting in effect."""

    session_ms: int | None = None
    heartbeat_ms: int | None = None


class Membership(Protocol):
    """What classic and consumer groups have in common: classic members may be in both."""

    @property
    def type(self) -> GroupType: ...
    @property
    def state(self) -> GroupState: ...
    @property
    def protocol_type(self) -> str: ...
    @property
    def emptied_at_ms(self) -> int: ...
    @property
    def is_idle(self) -> bool:
        """Whether it has no members and none is joining."""
        ...

    @property
    def member_count(self) -> int: ...

    def is_subscribed(self, topic: str) -> bool: ...
    def topics_read(self) -> Collection[str]:
        """Return the topics that members subscribe to, as far as known, without asking each."""
        ...

    def join(self, call: Join, token: Token, now_ms: int) -> None: ...
    def sync(self, call: Sync, token: Token, now_ms: int) -> None: ...
    def heartbeat(self, call: Heartbeat, token: Token, now_ms: int) -> None: ...
    def leave(self, call: Leave, token: Token, now_ms: int) -> None: ...
    def check_commit(
        self, call: CommitOffsets, now_ms: int, *, is_transactional: bool = False
    ) -> None: ...
    def describe(self) -> GroupDescription: ...
    def close(self, error: GoQueueError) -> None:
        """Stop all timers and complete all waiting calls with `error`."""
        ...


class Group:
    def __init__(self, group_id: str, context: CoordinatorContext) -> None:
        self.group_id = group_id
        self.settings = context.settings
        self.timers = context.timers
        self.context = context
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self.membership: Membership  # set by the code that opens, loads or migrates the group
        self.rebalances = RebalanceLog(
            REBALANCE_HISTORY_MAX, finished=lambda one: context.rebalanced(group_id, one)
        )
        self.durable: dict[bytes, bytes] = {}  # the membership in the log
        self.is_reloading = False  # a write failed; the group pauses, then reloads from the log

        self.staged: dict[bytes, bytes | None] = {}
        self.staged_offsets: list[OffsetChange] = []
        # The member that has last committed an offset of a partition, since the group was loaded.
        self.committers: dict[Partition, str] = {}
        self.replies: list[Reply] = []
        self.write_id = NO_WRITE  # the write in flight
        self.writes_pending: dict[int, Write] = {}  # transactional writes in flight

    @property
    def consumer_session_ms(self) -> int:
        """The session timeout of members of the consumer protocol."""
        own = self.context.times.get(self.group_id)
        if own is None or own.session_ms is None:
            return self.settings.consumer_session_ms
        return own.session_ms

    @property
    def consumer_heartbeat_ms(self) -> int:
        """The longest heartbeat interval of such members."""
        own = self.context.times.get(self.group_id)
        if own is None or own.heartbeat_ms is None:
            return self.settings.consumer_heartbeat_ms
        return own.heartbeat_ms

    @property
    def is_forgettable(self) -> bool:
        is_writing = self.write_id != NO_WRITE or self.staged or self.staged_offsets
        is_busy = is_writing or self.is_reloading
        has_offsets = self.offsets or self.has_pending
        return not (is_busy or self.durable or has_offsets) and self.membership.is_idle

    @property
    def has_pending(self) -> bool:
        return bool(self.pending or self.writes_pending)

    def unstable(self) -> set[Partition]:
        """The partitions with offsets pending in an open transaction."""
        unstable = self.pending.partitions()
        for write in self.writes_pending.values():
            unstable.update((topic, partition) for topic, partition, _ in write.offsets)
        return unstable

    def reply(self, token: Token, result: object) -> None:
        self.replies.append(Reply(token, result))
        self.context.journal.touch(self)

    def stage_group(self, record: GroupRecord | None) -> None:
        key = encode_group_key(self.group_id)
        self.staged[key] = None if record is None else encode_membership(record)
        self.context.journal.touch(self)

    def stage_member(self, member_id: str, record: MemberRecord | None) -> None:
        key = encode_member_key(self.group_id, member_id)
        self.staged[key] = None if record is None else encode_membership(record)
        self.context.journal.touch(self)

    def stage_offset(self, change: OffsetChange) -> None:
        self.staged_offsets.append(change)
        self.context.journal.touch(self)

    def drop_staged(self) -> list[Reply]:
        """Discard what was to be written; return the replies that waited for it."""
        replies, self.replies = self.replies, []
        self.staged, self.staged_offsets = {}, []
        return replies

    def apply(
        self, membership: dict[bytes, bytes | None], offsets: list[OffsetChange]
    ) -> list[Progress]:
        """Apply records that are now in the log; return which offsets they have raised."""
        moved = self._progress(offsets)
        for key, value in membership.items():
            if value is None:
                self.durable.pop(key, None)
            else:
                self.durable[key] = value
        for change in offsets:
            self.offsets.apply(change)
            if self.pending:
                self.pending.supersede(change[0], change[1])
        return moved

    def _progress(self, offsets: list[OffsetChange]) -> list[Progress]:
        moved: list[Progress] = []
        for topic, partition, committed in offsets:
            if committed is not None:
                before = self.offsets.of_topic(topic).get(partition)
                first = 0
                if before is not None and before.is_of(committed.topic_id):
                    first = before.offset
                if committed.offset > first:
                    member_id = self.committers.get((topic, partition), "")
                    end = committed.offset
                    about = (self.group_id, topic, partition, first, end, member_id)
                    moved.append(Progress(*about, committed.topic_id))
        return moved

    def apply_pending(self, producer_id: int, offsets: list[OffsetChange]) -> None:
        """Apply transactional offsets that are now in the log."""
        for change in offsets:
            self.pending.put(producer_id, change)

    def end_pending(self, producer_id: int, *, is_commit: bool) -> list[Progress]:
        """Apply the end of a transaction that is now in the log; return which offsets it raises."""
        changes = self.pending.take(producer_id)
        if not is_commit:
            return []
        moved = self._progress(changes)
        for change in changes:
            self.offsets.apply(change)
        return moved

    def durable_records(self) -> tuple[GroupRecord | None, list[MemberRecord]]:
        """The membership as a reload would find it."""
        group_key = encode_group_key(self.group_id)
        group_value = self.durable.get(group_key)
        record = None if group_value is None else decode_group(group_value)
        members = [decode_member(value) for key, value in self.durable.items() if key != group_key]
        return record, [member for member in members if member is not None]
