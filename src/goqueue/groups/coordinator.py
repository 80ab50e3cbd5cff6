"""All groups of one partition of `__consumer_offsets`, and the calls to them.

Every call takes the current time. Calls with a response take a token and return effects, among
which, now or later, is the reply to that token; or they raise the GoQueueError that is the
response.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from goqueue.groups.assignment.partitions import NO_PARTITIONS, Partition, Partitions, flatten
from goqueue.groups.calls import (
    JOIN_EPOCH,
    CommitOffsets,
    ConsumerHeartbeat,
    Heartbeat,
    Join,
    Leave,
    Sync,
)
from goqueue.groups.classic.membership import ClassicMembership
from goqueue.groups.consumer.membership import check_consumer_heartbeat
from goqueue.groups.consumer.migration import upgrade
from goqueue.groups.consumer.mixed import MixedMembership
from goqueue.groups.effects import Effect, Reply, Token
from goqueue.groups.group import Group
from goqueue.groups.metrics import RebalanceLog
from goqueue.groups.offsets import OffsetChange
from goqueue.groups.registry import GroupRegistry
from goqueue.groups.results import (
    DONE,
    CommittedOffset,
    GroupDescription,
    GroupState,
    GroupSummary,
    GroupType,
    OffsetErrors,
)
from goqueue.model.errors import (
    GoQueueError,
    GroupNotEmpty,
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    UnknownGroup,
    UnknownMember,
    UnstableOffsetCommit,
)
from goqueue.model.names import ProducerIdentity


class Coordinator(GroupRegistry):
    # Classic members

    def join(self, call: Join, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._find(call.group_id)
        if group is None:
            if call.member_id:
                raise UnknownMember(call.group_id, call.member_id)
            group = self._open_new(call.group_id)
        if isinstance(group.membership, MixedMembership) and group.membership.is_idle:
            self._start_classic(group, group.membership)
        return self._serve(group, group.membership.join, call, token, now_ms)

    def sync(self, call: Sync, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._find_of_member(call.group_id, call.member_id)
        return self._serve(group, group.membership.sync, call, token, now_ms)

    def heartbeat(self, call: Heartbeat, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._find_of_member(call.group_id, call.member_id)
        return self._serve(group, group.membership.heartbeat, call, token, now_ms)

    def leave(self, call: Leave, *, token: Token, now_ms: int) -> list[Effect]:
        first_id = call.members[0].member_id if call.members else ""
        group = self._find_of_member(call.group_id, first_id)
        return self._serve(group, group.membership.leave, call, token, now_ms)

    def _start_classic(self, group: Group, empty: MixedMembership) -> None:
        """Turn an empty consumer group into a classic one; its generations continue to count."""
        group.membership = ClassicMembership(
            group, generation=empty.epoch, emptied_at_ms=empty.emptied_at_ms
        )

    # Members of the consumer protocol

    def consumer_heartbeat(
        self, call: ConsumerHeartbeat, *, token: Token, now_ms: int
    ) -> list[Effect]:
        check_consumer_heartbeat(call)
        group = self._find(call.group_id)
        is_joining = call.member_epoch == JOIN_EPOCH
        if group is None:
            if not is_joining:
                raise UnknownMember(call.group_id, call.member_id)
            group = self._open_new(call.group_id)
        membership = group.membership
        if isinstance(membership, ClassicMembership):
            if not is_joining:
                raise UnknownMember(call.group_id, call.member_id)
            membership = upgrade(group, membership, now_ms)
        assert isinstance(membership, MixedMembership)
        return self._serve(group, membership.consumer_heartbeat, call, token, now_ms)

    # Offsets

    def commit_offsets(
        self,
        call: CommitOffsets,
        *,
        identity: ProducerIdentity | None = None,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        """Commit offsets, now or, as part of a producer's open transaction, when that commits."""
        group = self._find(call.group_id)
        if group is None:
            if call.generation >= 0:
                raise IllegalGeneration(f"Group {call.group_id!r} has no generation yet; join it.")
            group = self._open_new(call.group_id)
        is_transactional = identity is not None
        group.membership.check_commit(call, now_ms, is_transactional=is_transactional)
        changes, errors = self._changes(call, now_ms)
        if identity is not None and changes:
            reply = Reply(token, OffsetErrors(errors))
            self._journal.touch(group)
            write = self._journal.write_pending(group, identity, changes, reply)
            return [write, *self._finish(now_ms)]
        for change in changes:
            group.stage_offset(change)
        group.reply(token, OffsetErrors(errors))
        return self._finish(now_ms)

    def _changes(
        self, call: CommitOffsets, now_ms: int
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
            )
            changes.append((each.topic, each.partition, committed))
        return changes, errors

    def fetch_offsets(
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
        `require_stable` refuses if one of them may be about to change, see `unstable_offsets`.
        """
        self._check_ready()
        group = self._groups.get(group_id)
        if group is None:
            return {}
        if member_id and member_epoch >= 0 and isinstance(group.membership, MixedMembership):
            member = group.membership.find(member_id, None)
            group.membership.check_member_epoch(member, member_epoch)
        if require_stable and (unstable := self.unstable_offsets(group_id, partitions)):
            topic, number = min(unstable)
            raise UnstableOffsetCommit(
                f"An open transaction has a pending commit of an offset of {topic}/{number}; retry "
                "soon."
            )
        return group.offsets.select(partitions)

    def unstable_offsets(
        self, group_id: str, partitions: Mapping[str, Collection[int]] | None = None
    ) -> Partitions:
        """Return which of these partitions, or of all, have offsets pending in an open
        transaction.
        """
        self._check_ready()
        group = self._groups.get(group_id)
        if group is None or not group.has_pending:
            return NO_PARTITIONS
        unstable = frozenset(group.unstable())
        return unstable if partitions is None else unstable & flatten(partitions)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Mapping[str, Collection[int]],
        *,
        token: Token,
        now_ms: int,
    ) -> list[Effect]:
        group = self._find_existing(group_id)
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
        return self._finish(now_ms)

    def _is_too_large(self, metadata: str) -> bool:
        return len(metadata.encode()) > self.settings.offset_metadata_bytes_max

    def _too_large(self) -> OffsetMetadataTooLarge:
        return OffsetMetadataTooLarge(
            f"The metadata of an offset may have {self.settings.offset_metadata_bytes_max} bytes."
        )

    # Administration

    def list_groups(
        self,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
    ) -> list[GroupSummary]:
        """Return every group, or those in one of the states and of one of the types."""
        self._check_ready()
        return [
            GroupSummary(
                group_id=group.group_id,
                type=group.membership.type,
                state=group.membership.state,
                protocol_type=group.membership.protocol_type,
            )
            for group in self._groups.values()
            if (not states or group.membership.state in states)
            and (not types or group.membership.type in types)
        ]

    def describe_group(self, group_id: str) -> GroupDescription:
        return self._find_existing(group_id).membership.describe()

    def delete_group(self, group_id: str, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._find_existing(group_id)
        if group.membership.state is not GroupState.EMPTY:
            raise GroupNotEmpty(group_id)
        for topic, partition in self._offset_keys(group, None):
            group.stage_offset((topic, partition, None))
        self._stage_deletion(group)
        group.reply(token, DONE)
        return self._finish(now_ms)

    def rebalances(self, group_id: str) -> RebalanceLog:
        """The counters and the history of the group; read-only."""
        return self._find_existing(group_id).rebalances

    def _find_existing(self, group_id: str) -> Group:
        group = self._find(group_id)
        if group is None:
            raise UnknownGroup(group_id)
        return group

    def _find_of_member(self, group_id: str, member_id: str) -> Group:
        group = self._find(group_id)
        if group is None:
            raise UnknownMember(group_id, member_id)
        return group
