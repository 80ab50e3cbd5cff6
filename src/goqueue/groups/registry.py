"""The groups of one coordinator: loading, completing writes, timers and deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from goqueue.config import GroupSettings
from goqueue.groups.classic.membership import ClassicMembership
from goqueue.groups.consumer.migration import downgrade
from goqueue.groups.consumer.mixed import MixedMembership
from goqueue.groups.effects import Effect, Reply, Token
from goqueue.groups.group import Group, GroupTimes, Surroundings
from goqueue.groups.journal import NO_WRITE
from goqueue.groups.limits import (
    FAILED_WRITE_REST_MS,
    GROUP_ID_LENGTH_MAX,
    RETENTION_CHECK_MS,
    is_full,
)
from goqueue.groups.offsets import OffsetChange
from goqueue.groups.records import OffsetKey, decode_key, decode_offset
from goqueue.groups.refusals import too_many_groups
from goqueue.groups.results import GroupState, GroupType
from goqueue.groups.timers import Timer
from goqueue.model.errors import CoordinatorLoading, GoQueueError, InvalidGroupId

Call = TypeVar("Call")


class GroupRegistry:
    def __init__(
        self, settings: GroupSettings, times: Mapping[str, GroupTimes] | None = None
    ) -> None:
        """`times` holds the timeouts of groups that override the defaults; it may change."""
        self.settings = settings
        self._surroundings = Surroundings(settings, times={} if times is None else times)
        self._timers = self._surroundings.timers
        self._journal = self._surroundings.journal
        self._groups: dict[str, Group] = {}
        self._pending: dict[int, set[str]] = {}  # groups with pending offsets, by producer id
        self._is_loaded = False
        self._are_topics_known = False
        self._retention_timer = Timer(self._expire_offsets)

    # Loading and resigning

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int | None = None) -> None:
        """Replay one record of the log, oldest first. Keys of other kinds are skipped.

        With a producer id it is part of a transaction, whose outcome `replay_end` gives.
        """
        decoded = decode_key(key)
        if decoded is None:
            return
        group = self._groups.get(decoded.group_id) or self._open(decoded.group_id)
        if isinstance(decoded, OffsetKey):
            committed = None if value is None else decode_offset(value)
            change = (decoded.topic, decoded.partition, committed)
            if producer_id is None:
                group.apply({}, [change])
            else:
                self._apply_pending(group, producer_id, [change])
        else:
            group.apply({key: value}, [])

    def replay_end(self, producer_id: int, *, is_commit: bool) -> None:
        """Replay the end of a producer's transaction."""
        for group in self._end_pending(producer_id, is_commit=is_commit):
            self._journal.touch(group)

    def loaded(self, now_ms: int) -> list[Effect]:
        """Start the groups after the replay; every member gets a fresh session."""
        self._is_loaded = True
        for group in list(self._groups.values()):
            self._revive(group, now_ms)
            self._journal.touch(group)
        self._timers.arm(self._retention_timer, now_ms + RETENTION_CHECK_MS)
        return self._finish(now_ms)

    def resign(self, error: GoQueueError) -> list[Effect]:
        """Stop, because another node coordinates now; complete all waiting calls with `error`."""
        self._is_loaded = False
        replies = self._journal.abandon()
        for group in self._groups.values():
            group.membership.close(error)
            replies += group.replies
        self._groups.clear()
        self._pending.clear()
        self._retention_timer.cancel()
        return [Reply(reply.token, error) for reply in replies]

    # Completing writes

    def persisted(self, write_id: int, now_ms: int) -> list[Effect]:
        """Complete a write whose records are durable."""
        write = self._journal.settle(write_id)
        if write is None:
            return []
        if write.identity is None:
            write.group.apply(write.membership, write.offsets)
        else:
            self._apply_pending(write.group, write.identity.producer_id, write.offsets)
        self._journal.touch(write.group)
        return [*write.replies, *self._finish(now_ms)]

    def persist_failed(self, write_id: int, error: GoQueueError, now_ms: int) -> list[Effect]:
        """Fail a write whose records are not in the log and never will be."""
        write = self._journal.settle(write_id)
        if write is None:
            return []
        self._journal.touch(write.group)
        replies = [Reply(reply.token, error) for reply in write.replies]
        if write.membership:
            replies += self._tear(write.group, error, now_ms)
        return [*replies, *self._finish(now_ms)]

    def ended(self, producer_id: int, *, is_commit: bool, now_ms: int) -> list[Effect]:
        """Apply or drop the offsets of a producer's transaction whose end is durable."""
        self.replay_end(producer_id, is_commit=is_commit)
        return self._finish(now_ms)

    def _apply_pending(self, group: Group, producer_id: int, offsets: list[OffsetChange]) -> None:
        group.apply_pending(producer_id, offsets)
        self._pending.setdefault(producer_id, set()).add(group.group_id)

    def _end_pending(self, producer_id: int, *, is_commit: bool) -> list[Group]:
        names = sorted(self._pending.pop(producer_id, ()))
        groups = [self._groups[name] for name in names if name in self._groups]
        for group in groups:
            group.end_pending(producer_id, is_commit=is_commit)
        return groups

    def _tear(self, group: Group, error: GoQueueError, now_ms: int) -> list[Reply]:
        """Stop a group whose memory is ahead of the log, and go back to what the log holds.

        The group pauses for a while, because the log may refuse the next write as well.
        """
        group.membership.close(error)
        group.is_torn = True
        rest = Timer(lambda now_ms: self._mend(group, now_ms))
        self._timers.arm(rest, now_ms + FAILED_WRITE_REST_MS)
        return [Reply(reply.token, error) for reply in group.drop_staged()]

    def _mend(self, group: Group, now_ms: int) -> None:
        group.is_torn = False
        self._revive(group, now_ms)
        self._journal.touch(group)

    def _revive(self, group: Group, now_ms: int) -> None:
        record, members = group.durable_records()
        if record is not None and record.type is GroupType.CONSUMER:
            mixed = MixedMembership(group)
            group.membership = mixed
            mixed.restore(record, members, now_ms)
            return
        classic = ClassicMembership(group)
        group.membership = classic
        if record is not None:
            classic.restore(record, members, now_ms)

    # Time and topics

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do. Get it again after every other call."""
        return self._timers.next_deadline_ms() if self._is_loaded else None

    def tick(self, now_ms: int) -> list[Effect]:
        while self._is_loaded and (timer := self._timers.pop_due(now_ms)) is not None:
            timer.fire(now_ms)
        return self._finish(now_ms)

    def topics_changed(self, now_ms: int, topics: Mapping[str, int]) -> list[Effect]:
        """Update all existing topics and their partition counts; call it once before any other
        call.
        """
        known = self._surroundings.topics
        added = topics.keys() - known.keys()
        removed = known.keys() - topics.keys()
        is_changed = known != topics
        known.clear()
        known.update(topics)
        self._are_topics_known = True
        if is_changed and self._is_loaded:
            for group in self._groups.values():
                self._adapt(group, added=added, removed=removed, now_ms=now_ms)
        return self._finish(now_ms)

    def _adapt(self, group: Group, *, added: set[str], removed: set[str], now_ms: int) -> None:
        if isinstance(group.membership, MixedMembership) and not group.is_torn:
            group.membership.topics_changed(added=added, removed=removed, now_ms=now_ms)
        for topic, partition in self._offset_keys(group, removed):
            group.stage_offset((topic, partition, None))

    def _offset_keys(self, group: Group, topics: set[str] | None) -> list[tuple[str, int]]:
        """The partitions with a committed offset, durable or in flight; `None` means all."""
        if topics is not None and not topics:
            return []
        changes: list[OffsetChange] = [*group.offsets, *group.staged_offsets]
        if (write := self._journal.open_write(group)) is not None:
            changes += write.offsets
        keys = {(topic, partition) for topic, partition, _ in changes} | group.unstable()
        return sorted(key for key in keys if topics is None or key[0] in topics)

    def _expire_offsets(self, now_ms: int) -> None:
        self._timers.arm(self._retention_timer, now_ms + RETENTION_CHECK_MS)
        for group in self._groups.values():
            if not group.is_torn:
                self._expire_offsets_of(group, now_ms)

    def _expire_offsets_of(self, group: Group, now_ms: int) -> None:
        membership = group.membership
        is_empty = membership.state is GroupState.EMPTY
        expired = group.offsets.expired(
            now_ms,
            retention_ms=self.settings.offsets_retention_ms,
            emptied_at_ms=membership.emptied_at_ms if is_empty else -1,
            is_subscribed=membership.is_subscribed,
        )
        if group.has_pending:
            unstable = group.unstable()
            expired = [change for change in expired if (change[0], change[1]) not in unstable]
        for change in expired:
            group.stage_offset(change)
        is_over = membership.is_idle and len(expired) == len(group.offsets)
        is_over = is_over and not group.has_pending
        if is_over and group.write_id == NO_WRITE:
            self._stage_deletion(group)

    def _stage_deletion(self, group: Group) -> None:
        """Delete all of the group's membership from the log."""
        for key in group.durable:
            group.staged[key] = None
        if (write := self._journal.open_write(group)) is not None:
            group.staged.update(dict.fromkeys(write.membership))
        group.staged = dict.fromkeys(group.staged)
        group.membership.close(CoordinatorLoading("The group was deleted; join again."))
        group.membership = ClassicMembership(group)
        self._journal.touch(group)

    # Serving

    def _serve(
        self,
        group: Group,
        handle: Callable[[Call, Token, int], None],
        call: Call,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Let the group handle a call. An error is raised, unless something changed before it."""
        try:
            handle(call, token, now_ms)
        except GoQueueError as error:
            if not group.staged:
                self._forget_if_void(group)
                raise
            group.reply(token, error)
        return self._finish(now_ms)

    def _finish(self, now_ms: int) -> list[Effect]:
        """The effects of all touched groups."""
        effects: list[Effect] = []
        for group in self._journal.touched:
            membership = group.membership
            if isinstance(membership, MixedMembership) and membership.is_all_classic:
                downgrade(group, membership, now_ms)
            self._journal.flush(group, effects)
            self._forget_if_void(group)
        self._journal.touched.clear()
        return effects

    def _forget_if_void(self, group: Group) -> None:
        if not group.durable and group.is_forgettable:
            self._groups.pop(group.group_id, None)

    def _open_new(self, group_id: str) -> Group:
        """Create a group for a client, if the limit allows one more."""
        count_max = self.settings.per_partition_max
        if is_full(len(self._groups), count_max):
            raise too_many_groups(count_max)
        return self._open(group_id)

    def _open(self, group_id: str) -> Group:
        group = Group(group_id, self._surroundings)
        group.membership = ClassicMembership(group)
        self._groups[group_id] = group
        return group

    def _find(self, group_id: str) -> Group | None:
        """The group, if it exists and accepts calls now."""
        self._check_ready()
        if not group_id or len(group_id) > GROUP_ID_LENGTH_MAX:
            raise InvalidGroupId(f"{group_id[:100]!r} is not a valid group id.")
        group = self._groups.get(group_id)
        if group is not None and group.is_torn:
            raise CoordinatorLoading(f"Group {group_id!r} is being reloaded; retry.")
        return group

    def _check_ready(self) -> None:
        if not (self._is_loaded and self._are_topics_known):
            raise CoordinatorLoading("The coordinator is loading its log; retry.")
