"""The coordinator of all groups of one partition of `__consumer_offsets`.

Every call takes the current time. Calls with a response take a token and return effects, among
which, now or later, is the reply to that token; or they raise the GoQueueError that is the
response.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from goqueue.config import GroupSettings
from goqueue.groups.calls import JOIN_EPOCH, ConsumerHeartbeat, Heartbeat, Join, Leave, Sync
from goqueue.groups.classic import ClassicMembership
from goqueue.groups.consumer import ConsumerMembership
from goqueue.groups.consumer.membership import check_consumer_heartbeat
from goqueue.groups.consumer.migration import upgrade
from goqueue.groups.effects import Effect, Progress, Reply, Token
from goqueue.groups.group import Group, GroupTimes
from goqueue.groups.limits import FAILED_WRITE_REST_MS
from goqueue.groups.metrics import Rebalance, RebalanceLog
from goqueue.groups.offset_commits import OffsetCommits
from goqueue.groups.records import OffsetKey, decode_key, decode_offset
from goqueue.groups.registry import GroupRegistry
from goqueue.groups.results import DONE, GroupDescription, GroupState, GroupSummary, GroupType
from goqueue.groups.timers import Timer
from goqueue.model.errors import GoQueueError, GroupNotEmpty, UnknownMember


class Coordinator:
    def __init__(
        self, settings: GroupSettings, times: Mapping[str, GroupTimes] | None = None
    ) -> None:
        """`times` holds the timeouts of groups that override the defaults; it may change."""
        self._registry = GroupRegistry(settings, {} if times is None else times)
        self._timers = self._registry.context.timers
        self._journal = self._registry.context.journal
        self.offsets = OffsetCommits(self._registry)
        self.reports_progress = False  # whether `Progress` is among the effects

    def on_rebalanced(self, rebalanced: Callable[[str, Rebalance], None]) -> None:
        """Call `rebalanced` with the group of every rebalance that ends."""
        self._registry.context.rebalanced = rebalanced

    # Loading and resigning

    def replay(
        self, key: bytes, value: bytes | None, *, producer_id: int | None = None
    ) -> list[Progress]:
        """Replay one record of the log, oldest first; return which offsets it has raised.

        Keys of other kinds are skipped. With a producer id it is part of a transaction, whose
        outcome `replay_end` gives.
        """
        decoded = decode_key(key)
        if decoded is None:
            return []
        group = self._registry.open(decoded.group_id)
        if isinstance(decoded, OffsetKey):
            committed = None if value is None else decode_offset(value)
            change = (decoded.topic, decoded.partition, committed)
            if producer_id is None:
                return group.apply({}, [change])
            self.offsets.apply_pending(group, producer_id, [change])
        else:
            group.apply({key: value}, [])
        return []

    def replay_end(self, producer_id: int, *, is_commit: bool) -> list[Progress]:
        """Replay the end of a producer's transaction; return which offsets it has raised."""
        return self.offsets.end_transaction(producer_id, is_commit=is_commit)

    def loaded(self, now_ms: int) -> list[Effect]:
        """Start the groups after the replay; every member gets a fresh session."""
        self._registry.is_loaded = True
        for group in list(self._registry):
            self._registry.reload(group, now_ms)
        self.offsets.start(now_ms)
        return self._registry.finish(now_ms)

    def resign(self, error: GoQueueError) -> list[Effect]:
        """Stop, because another node coordinates now; complete all waiting calls with `error`."""
        self._registry.is_loaded = False
        replies = self._journal.abandon()
        for group in self._registry:
            group.membership.close(error)
            replies += group.replies
        self._registry.clear()
        self.offsets.stop()
        return [Reply(reply.token, error) for reply in replies]

    # Completing writes

    def persisted(self, write_id: int, now_ms: int) -> list[Effect]:
        """Complete a write whose records are durable."""
        write = self._journal.settle(write_id)
        if write is None:
            return []
        moved: list[Progress] = []
        if write.identity is None:
            moved = write.group.apply(write.membership, write.offsets)
        else:
            self.offsets.apply_pending(write.group, write.identity.producer_id, write.offsets)
        self._journal.touch(write.group)
        if not self.reports_progress:
            moved = []
        return [*moved, *write.replies, *self._registry.finish(now_ms)]

    def persist_failed(self, write_id: int, error: GoQueueError, now_ms: int) -> list[Effect]:
        """Fail a write whose records are not in the log and never will be."""
        write = self._journal.settle(write_id)
        if write is None:
            return []
        self._journal.touch(write.group)
        replies = [Reply(reply.token, error) for reply in write.replies]
        if write.membership:
            replies += self._pause(write.group, error, now_ms)
        return [*replies, *self._registry.finish(now_ms)]

    def ended(self, producer_id: int, *, is_commit: bool, now_ms: int) -> list[Effect]:
        """Apply or drop the offsets of a producer's transaction whose end is durable."""
        moved = self.offsets.end_transaction(producer_id, is_commit=is_commit)
        if not self.reports_progress:
            moved = []
        return [*moved, *self._registry.finish(now_ms)]

    def _pause(self, group: Group, error: GoQueueError, now_ms: int) -> list[Reply]:
        """Stop a group whose memory is ahead of the log, and schedule its reload from the log.

        The group pauses for a while, because the log may refuse the next write as well.
        """
        group.membership.close(error)
        group.is_reloading = True
        pause = Timer(lambda now_ms: self._resume(group, now_ms))
        self._timers.arm(pause, now_ms + FAILED_WRITE_REST_MS)
        return [Reply(reply.token, error) for reply in group.drop_staged()]

    def _resume(self, group: Group, now_ms: int) -> None:
        group.is_reloading = False
        self._registry.reload(group, now_ms)

    # Time and topics

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do. Get it again after every other call."""
        return self._timers.next_deadline_ms() if self._registry.is_loaded else None

    def tick(self, now_ms: int) -> list[Effect]:
        """Run all timers that are due."""
        while self._registry.is_loaded and (timer := self._timers.pop_due(now_ms)) is not None:
            timer.fire(now_ms)
        return self._registry.finish(now_ms)

    def topics_changed(self, now_ms: int, topics: Mapping[str, int]) -> list[Effect]:
        """Update all existing topics and their partition counts; call it once before any other
        call.
        """
        known = self._registry.context.topics
        added = topics.keys() - known.keys()
        removed = known.keys() - topics.keys()
        is_changed = known != topics
        known.clear()
        known.update(topics)
        self._registry.are_topics_known = True
        if is_changed and self._registry.is_loaded:
            for group in self._registry:
                self._adapt(group, added=added, removed=removed, now_ms=now_ms)
        return self._registry.finish(now_ms)

    def _adapt(self, group: Group, *, added: set[str], removed: set[str], now_ms: int) -> None:
        membership = group.membership
        if isinstance(membership, ConsumerMembership) and not group.is_reloading:
            membership.reconciler.topics_changed(added=added, removed=removed, now_ms=now_ms)
        self.offsets.delete_all(group, removed)

    # Members

    def join(self, call: Join, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._registry.find(call.group_id)
        if group is None:
            if call.member_id:
                raise UnknownMember(call.group_id, call.member_id)
            group = self._registry.open_new(call.group_id)
        if isinstance(group.membership, ConsumerMembership) and group.membership.is_idle:
            self._start_classic(group, group.membership)
        return self._registry.serve(group, group.membership.join, call, token, now_ms)

    def sync(self, call: Sync, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._registry.get_of_member(call.group_id, call.member_id)
        return self._registry.serve(group, group.membership.sync, call, token, now_ms)

    def heartbeat(self, call: Heartbeat, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._registry.get_of_member(call.group_id, call.member_id)
        return self._registry.serve(group, group.membership.heartbeat, call, token, now_ms)

    def leave(self, call: Leave, *, token: Token, now_ms: int) -> list[Effect]:
        first_id = call.members[0].member_id if call.members else ""
        group = self._registry.get_of_member(call.group_id, first_id)
        return self._registry.serve(group, group.membership.leave, call, token, now_ms)

    def _start_classic(self, group: Group, empty: ConsumerMembership) -> None:
        """Turn an empty consumer group into a classic one; its generations continue to count."""
        group.membership = ClassicMembership(
            group, generation=empty.reconciler.epoch, emptied_at_ms=empty.emptied_at_ms
        )

    def consumer_heartbeat(
        self, call: ConsumerHeartbeat, *, token: Token, now_ms: int
    ) -> list[Effect]:
        """Handle the heartbeat of a member of the consumer protocol, which may join or leave."""
        check_consumer_heartbeat(call)
        group = self._registry.find(call.group_id)
        is_joining = call.member_epoch == JOIN_EPOCH
        if group is None:
            if not is_joining:
                raise UnknownMember(call.group_id, call.member_id)
            group = self._registry.open_new(call.group_id)
        membership = group.membership
        if isinstance(membership, ClassicMembership):
            if not is_joining:
                raise UnknownMember(call.group_id, call.member_id)
            membership = upgrade(group, membership, now_ms)
        assert isinstance(membership, ConsumerMembership)
        return self._registry.serve(group, membership.consumer_heartbeat, call, token, now_ms)

    # Administration

    def list_groups(
        self,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
    ) -> list[GroupSummary]:
        """Return every group, or those in one of the states and of one of the types."""
        self._registry.check_ready()
        return [
            GroupSummary(
                group_id=group.group_id,
                type=group.membership.type,
                state=group.membership.state,
                protocol_type=group.membership.protocol_type,
            )
            for group in self._registry
            if (not states or group.membership.state in states)
            and (not types or group.membership.type in types)
        ]

    def groups(self) -> list[Group]:
        """Return every group, for inspection; none while the log is being loaded."""
        return list(self._registry) if self._registry.is_loaded else []

    def find(self, group_id: str) -> Group | None:
        """Return a group, for inspection; none while the log is being loaded."""
        return self._registry.peek(group_id) if self._registry.is_loaded else None

    def describe_group(self, group_id: str) -> GroupDescription:
        return self._registry.get(group_id).membership.describe()

    def topics_read(self, group_id: str) -> Collection[str]:
        return self._registry.get(group_id).membership.topics_read()

    def delete_group(self, group_id: str, *, token: Token, now_ms: int) -> list[Effect]:
        group = self._registry.get(group_id)
        if group.membership.state is not GroupState.EMPTY:
            raise GroupNotEmpty(group_id)
        self.offsets.delete_all(group)
        self._registry.delete(group)
        group.reply(token, DONE)
        return self._registry.finish(now_ms)

    def rebalances(self, group_id: str) -> RebalanceLog:
        """The counters and the history of the group; read-only."""
        return self._registry.get(group_id).rebalances
