"""The committed offsets of all groups of one coordinator: commit, read, delete, expire."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from goqueue.groups.assignment import NO_PARTITIONS, Partition, Partitions, flatten
from goqueue.groups.calls import CommitOffsets
from goqueue.groups.consumer import ConsumerMembership
from goqueue.groups.effects import Effect, Progress, Reply, Token
from goqueue.groups.group import Group
from goqueue.groups.journal import NO_WRITE
from goqueue.groups.limits import RETENTION_CHECK_MS
from goqueue.groups.offsets import OffsetChange
from goqueue.groups.registry import GroupRegistry
from goqueue.groups.results import CommittedOffset, GroupState, OffsetErrors
from goqueue.groups.timers import Timer
from goqueue.model.errors import (
    GoQueueError,
    GroupNotEmpty,
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    UnstableOffsetCommit,
)
from goqueue.model.names import ProducerIdentity


class OffsetCommits:
    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._settings = registry.settings
        self._journal = registry.context.journal
        self._timers = registry.context.timers
        self._pending: dict[int, set[str]] = {}  # groups with pending offsets, by producer id
        self._retention_timer = Timer(self._expire)

    def commit(
        self,
        call: CommitOffsets,
        *,
        identity: ProducerIdentity | None = None,
        topic_ids: Mapping[str, bytes] = {},
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Commit offsets, now or, as part of a producer's open transaction, when that commits.

        `topic_ids` are those of the topics that exist at the moment, by name.
        """
        group = self._registry.find(call.group_id)
        if group is None:
            if call.generation >= 0:
                raise IllegalGeneration(f"Group {call.group_id!r} has no generation yet; join it.")
            group = self._registry.open_new(call.group_id)
        is_transactional = identity is not None
        group.membership.check_commit(call, now_ms, is_transactional=is_transactional)
        changes, errors = self._changes(call, topic_ids, now_ms)
        if identity is not None and changes:
            reply = Reply(token, OffsetErrors(errors))
            self._journal.touch(group)
            write = self._journal.write_pending(group, identity, changes, reply)
            return [write, *self._registry.finish(now_ms)]
        for change in changes:
            group.stage_offset(change)
            group.committers[change[0], change[1]] = call.member_id
        group.reply(token, OffsetErrors(errors))
        return self._registry.finish(now_ms)

    def fetch(
        self,
        group_id: str,
        partitions: Mapping[str, Collection[int]] | None = None,
        *,
        member_id: str = "",
        member_epoch: int = -1,
        require_stable: bool = False,
    ) -> dict[str, dict[int, CommittedOffset]]:
        """Return committed, durable offsets; partitions without one are left out. `None` means all.

        A member of the consumer protocol gives its epoch, and is refused if it is stale.
        `require_stable` refuses if one of them may be about to change, see `unstable`.
        """
        self._registry.check_ready()
        group = self._registry.peek(group_id)
        if group is None:
            return {}
        if member_id and member_epoch >= 0 and isinstance(group.membership, ConsumerMembership):
            group.membership.check_member_epoch(member_id, member_epoch)
        if require_stable and (unstable := self.unstable(group_id, partitions)):
            topic, number = min(unstable)
            raise UnstableOffsetCommit(
                f"An open transaction has a pending commit of an offset of {topic}/{number}; retry "
                "soon."
            )
        return group.offsets.select(partitions)

    def unstable(
        self, group_id: str, partitions: Mapping[str, Collection[int]] | None = None
    ) -> Partitions:
        """Return which of these partitions, or of all, have offsets pending in an open
        transaction.
        """
        self._registry.check_ready()
        group = self._registry.peek(group_id)
        if group is None or not group.has_pending:
            return NO_PARTITIONS
        unstable = frozenset(group.unstable())
        return unstable if partitions is None else unstable & flatten(partitions)

    def delete(
        self,
        group_id: str,
        partitions: Mapping[str, Collection[int]],
        *,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Delete the offsets of topics that no member subscribes to."""
        group = self._registry.get(group_id)
        membership = group.membership
        if not membership.is_idle and membership.protocol_type != "consumer":
            raise GroupNotEmpty(group_id)
        errors: dict[Partition, GoQueueError] = {}
        unstable = group.unstable()
        for topic, numbers in partitions.items():
            is_subscribed = membership.is_subscribed(topic)
            for partition in numbers:
                if is_subscribed:
                    errors[topic, partition] = GroupSubscribedToTopic(
                        f"Group {group_id!r} is still subscribed to topic {topic!r}."
                    )
                elif partition in group.offsets.of_topic(topic) or ((topic, partition) in unstable):
                    group.stage_offset((topic, partition, None))
        group.reply(token, OffsetErrors(errors))
        return self._registry.finish(now_ms)

    def delete_all(self, group: Group, topics: Collection[str] | None = None) -> None:
        """Delete the group's offsets, of all topics or of these, whatever members subscribe to."""
        if topics is not None and not topics:
            return
        changes: list[OffsetChange] = [*group.offsets, *group.staged_offsets]
        if (write := self._journal.open_write(group)) is not None:
            changes += write.offsets
        keys = {(topic, partition) for topic, partition, _ in changes} | group.unstable()
        for topic, partition in sorted(keys):
            if topics is None or topic in topics:
                group.stage_offset((topic, partition, None))

    # Transactions

    def apply_pending(self, group: Group, producer_id: int, offsets: list[OffsetChange]) -> None:
        """Apply offsets of an open transaction that are now in the log."""
        group.apply_pending(producer_id, offsets)
        self._pending.setdefault(producer_id, set()).add(group.group_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> list[Progress]:
        """Apply or drop the pending offsets of a transaction whose end is now in the log."""
        moved: list[Progress] = []
        for group_id in sorted(self._pending.pop(producer_id, ())):
            group = self._registry.peek(group_id)
            if group is not None:
                moved += group.end_pending(producer_id, is_commit=is_commit)
                self._journal.touch(group)
        return moved

    # Retention

    def start(self, now_ms: int) -> None:
        """Begin to expire offsets."""
        self._timers.arm(self._retention_timer, now_ms + RETENTION_CHECK_MS)

    def stop(self) -> None:
        self._pending.clear()
        self._retention_timer.cancel()

    def _expire(self, now_ms: int) -> None:
        self._timers.arm(self._retention_timer, now_ms + RETENTION_CHECK_MS)
        for group in self._registry:
            if not group.is_reloading:
                self._expire_of(group, now_ms)

    def _expire_of(self, group: Group, now_ms: int) -> None:
        membership = group.membership
        is_empty = membership.state is GroupState.EMPTY
        expired = group.offsets.expired(
            now_ms,
            retention_ms=self._settings.offsets_retention_ms,
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
            self._registry.delete(group)

    # Checks

    def _changes(
        self, call: CommitOffsets, topic_ids: Mapping[str, bytes], now_ms: int
    ) -> tuple[list[OffsetChange], dict[Partition, GoQueueError]]:
        expires_at_ms = -1 if call.retention_ms is None else now_ms + call.retention_ms
        changes: list[OffsetChange] = []
        errors: dict[Partition, GoQueueError] = {}
        for each in call.offsets:
            if self._is_too_large(each.metadata):
                errors[each.topic, each.partition] = self._too_large()
                continue
            committed = CommittedOffset(
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                committed_at_ms=now_ms,
                expires_at_ms=expires_at_ms,
                topic_id=topic_ids.get(each.topic, b""),
            )
            changes.append((each.topic, each.partition, committed))
        return changes, errors

    def _is_too_large(self, metadata: str) -> bool:
        return len(metadata.encode()) > self._settings.offset_metadata_bytes_max

    def _too_large(self) -> OffsetMetadataTooLarge:
        return OffsetMetadataTooLarge(
            f"The metadata of an offset may have {self._settings.offset_metadata_bytes_max} bytes."
        )
