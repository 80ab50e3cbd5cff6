"""The groups of one coordinator by id: finding, opening, reloading and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from goqueue.config import GroupSettings
from goqueue.groups.classic import ClassicMembership
from goqueue.groups.consumer import ConsumerMembership
from goqueue.groups.consumer.migration import downgrade
from goqueue.groups.effects import Effect, Token
from goqueue.groups.group import CoordinatorContext, Group, GroupTimes
from goqueue.groups.limits import GROUP_ID_LENGTH_MAX, is_full
from goqueue.groups.refusals import too_many_groups
from goqueue.groups.results import GroupType
from goqueue.model.errors import (
    CoordinatorLoading,
    GoQueueError,
    InvalidGroupId,
    UnknownGroup,
    UnknownMember,
)

Call = TypeVar("Call")


class GroupRegistry:
    """The groups, and the effects of every change to one of them."""

    def __init__(self, settings: GroupSettings, times: Mapping[str, GroupTimes]) -> None:
        self.settings = settings
        self.context = CoordinatorContext(settings, times=times)
        self.is_loaded = False
        self.are_topics_known = False
        self._journal = self.context.journal
        self._groups: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    # Finding

    def find(self, group_id: str) -> Group | None:
        """The group, if it exists and accepts calls now."""
        self.check_ready()
        if not group_id or len(group_id) > GROUP_ID_LENGTH_MAX:
            raise InvalidGroupId(f"{group_id[:100]!r} is not a valid group id.")
        group = self._groups.get(group_id)
        if group is not None and group.is_reloading:
            raise CoordinatorLoading(f"Group {group_id!r} is being reloaded; retry.")
        return group

    def get(self, group_id: str) -> Group:
        """The group; an error if it does not exist."""
        group = self.find(group_id)
        if group is None:
            raise UnknownGroup(group_id)
        return group

    def get_of_member(self, group_id: str, member_id: str) -> Group:
        """The group that a member names; without the group there is no such member."""
        group = self.find(group_id)
        if group is None:
            raise UnknownMember(group_id, member_id)
        return group

    def peek(self, group_id: str) -> Group | None:
        """The group, also while it is being reloaded: its committed offsets are valid then."""
        return self._groups.get(group_id)

    def check_ready(self) -> None:
        """Refuse every call while the log is being loaded."""
        if not (self.is_loaded and self.are_topics_known):
            raise CoordinatorLoading("The coordinator is loading its log; retry.")

    # Opening, reloading, deleting

    def open_new(self, group_id: str) -> Group:
        """Create a group for a client, if the limit allows one more."""
        count_max = self.settings.per_partition_max
        if is_full(len(self._groups), count_max):
            raise too_many_groups(count_max)
        return self.open(group_id)

    def open(self, group_id: str) -> Group:
        """Return the group with this id, created without members if it is missing."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, self.context)
            group.membership = ClassicMembership(group)
        return group

    def reload(self, group: Group, now_ms: int) -> None:
        """Set the group's membership to what the log holds."""
        record, members = group.durable_records()
        if record is not None and record.type is GroupType.CONSUMER:
            consumer = ConsumerMembership(group)
            group.membership = consumer
            consumer.reconciler.restore(record, members, now_ms)
        else:
            classic = ClassicMembership(group)
            group.membership = classic
            if record is not None:
                classic.rebalance.restore(record, members, now_ms)
        self._journal.touch(group)

    def delete(self, group: Group) -> None:
        """Delete all of the group's membership from the log."""
        for key in group.durable:
            group.staged[key] = None
        if (write := self._journal.open_write(group)) is not None:
            group.staged.update(dict.fromkeys(write.membership))
        group.staged = dict.fromkeys(group.staged)
        group.membership.close(CoordinatorLoading("The group was deleted; join again."))
        group.membership = ClassicMembership(group)
        self._journal.touch(group)

    def clear(self) -> None:
        self._groups.clear()

    # Effects

    def serve(
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
                self._forget_if_unused(group)
                raise
            group.reply(token, error)
        return self.finish(now_ms)

    def finish(self, now_ms: int) -> list[Effect]:
        """The effects of all touched groups."""
        effects: list[Effect] = []
        for group in self._journal.touched:
            membership = group.membership
            if isinstance(membership, ConsumerMembership) and membership.reconciler.is_all_classic:
                downgrade(group, membership, now_ms)
            self._journal.flush(group, effects)
            self._forget_if_unused(group)
        self._journal.touched.clear()
        return effects

    def _forget_if_unused(self, group: Group) -> None:
        if not group.durable and group.is_forgettable:
            self._groups.pop(group.group_id, None)
