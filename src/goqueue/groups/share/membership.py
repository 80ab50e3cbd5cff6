"""The members of one share group, and their epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.groups.share.assignor import Partitions, assign
from goqueue.model.errors import (
    FencedMemberEpoch,
    GroupFull,
    InvalidRequest,
    UnknownMember,
)
from goqueue.model.share_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResult,
    ShareMemberDescription,
)

MEMBERS_MAX = 200
TOPICS_MAX = 10_000  # that the members of a group subscribe to: each heartbeat looks them up
SUBSCRIPTION_LENGTH_MAX = 1 << 20  # characters of all topics of one member
MEMBER_ID_LENGTH_MAX = RACK_LENGTH_MAX = 249

EMPTY, STABLE = "Empty", "Stable"


class MemberTimes(NamedTuple):
    """How often members send heartbeats, and after how long without any they are removed."""

    session_ms: int
    heartbeat_ms: int


@dataclass(slots=True)
class _Member:
    call: ShareHeartbeat  # by which it joined or last changed its subscription
    topics: tuple[str, ...]
    seen_ms: int
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: Partitions = field(default_factory=frozenset)


class ShareMembership:
    """The members of a group. A group epoch counts the changes that may change the assignment."""

    def __init__(self) -> None:
        self.epoch = 0
        self._members: dict[str, _Member] = {}
        self._names: dict[str, None] | None = None  # of all topics; None after a change of members
        self._counts: dict[str, int] = {}
        self._target: dict[str, Partitions] = {}

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def is_empty(self) -> bool:
        return not self._members

    def heartbeat(
        self,
        call: ShareHeartbeat,
        now_ms: int,
        *,
        times: MemberTimes,
        partition_count: Callable[[str], int],
    ) -> ShareHeartbeatResult:
        """Let a member join, stay or leave. `partition_count` returns 0 for a missing topic."""
        _check(call)
        self.expire(now_ms, times)
        if call.member_epoch == LEAVE_EPOCH:
            return self._leave(call, times)
        if call.subscribed_topics is not None:
            self._check_topics(call.member_id, call.subscribed_topics)
        member = self._join(call) if call.member_epoch == JOIN_EPOCH else self._stay(call)
        member.seen_ms = now_ms
        if call.subscribed_topics is not None:
            self._subscribe(member, call)
        self._follow_topics(partition_count)
        return self._answer(member, call, times)

    def expire(self, now_ms: int, times: MemberTimes) -> None:
        """Remove the members whose sessions are over."""
        gone = [
            name for name, one in self._members.items() if one.seen_ms + times.session_ms <= now_ms
        ]
        for name in gone:
            del self._members[name]
        if gone:
            self._changed()

    def describe(self, group_id: str) -> ShareGroupDescription:
        return ShareGroupDescription(
            group_id,
            STABLE if self._members else EMPTY,
            self.epoch,
            members=tuple(
                ShareMemberDescription(
                    name,
                    one.epoch,
                    one.call.rack_id,
                    one.call.client_id,
                    one.call.client_host,
                    one.topics,
                    one.assigned,
                )
                for name, one in self._members.items()
            ),
        )

    def _leave(self, call: ShareHeartbeat, times: MemberTimes) -> ShareHeartbeatResult:
        if self._members.pop(call.member_id, None) is None:
            raise _unknown(call)
        self._changed()
        return ShareHeartbeatResult(call.member_id, LEAVE_EPOCH, times.heartbeat_ms)

    def _join(self, call: ShareHeartbeat) -> _Member:
        member = self._members.get(call.member_id)
        if member is not None:
            return member
        if call.subscribed_topics is None:
            raise InvalidRequest("A member that joins a share group names the topics it reads.")
        if len(self._members) >= MEMBERS_MAX:
            raise GroupFull(f"A share group has at most {MEMBERS_MAX} members.")
        return self._members.setdefault(call.member_id, _Member(call, (), 0))

    def _stay(self, call: ShareHeartbeat) -> _Member:
        member = self._members.get(call.member_id)
        if member is None:
            raise _unknown(call)
        # The previous epoch is that of a member that has not received the last answer.
        if call.member_epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(
                f"Member {call.member_id!r} is at epoch {member.epoch}, not {call.member_epoch}; "
                "join again."
            )
        return member

    def _check_topics(self, member_id: str, topics: Sequence[str]) -> None:
        """Raise if the group would have too many topics with those of this member."""
        names = set(topics)
        for name, one in self._members.items():
            if name != member_id:
                names.update(one.topics)
        if len(names) > TOPICS_MAX:
            raise InvalidRequest(
                f"The members of a share group subscribe to at most {TOPICS_MAX} topics together."
            )

    def _subscribe(self, member: _Member, call: ShareHeartbeat) -> None:
        topics = tuple(dict.fromkeys(call.subscribed_topics or ()))
        is_changed = topics != member.topics or not member.epoch
        member.call, member.topics = call, topics
        if is_changed:
            self._changed()

    def _follow_topics(self, partition_count: Callable[[str], int]) -> None:
        """Assign partitions again if members, topics or partitions have changed."""
        if self._names is None:
            self._names = dict.fromkeys(
                topic for one in self._members.values() for topic in one.topics
            )
        counts = {name: count for name in self._names if (count := partition_count(name))}
        if counts != self._counts:
            self._counts = counts
            self._reassign()
        if not self._target:
            topics = {name: one.topics for name, one in self._members.items()}
            self._target = assign(topics, counts)

    def _changed(self) -> None:
        self._names = None
        self._reassign()

    def _reassign(self) -> None:
        self.epoch += 1
        self._target = {}

    def _answer(
        self, member: _Member, call: ShareHeartbeat, times: MemberTimes
    ) -> ShareHeartbeatResult:
        target = self._target[call.member_id]
        # A member that sends its subscription, or an earlier epoch, may not know its partitions.
        is_told = call.subscribed_topics is None and call.member_epoch == member.epoch
        is_unchanged = is_told and target == member.assigned
        member.assigned = target
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        return ShareHeartbeatResult(
            call.member_id, member.epoch, times.heartbeat_ms, None if is_unchanged else target
        )


def _check(call: ShareHeartbeat) -> None:
    if not 1 <= len(call.member_id) <= MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest(f"A member id has 1 to {MEMBER_ID_LENGTH_MAX} characters.")
    if call.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest(f"{call.member_epoch} is not the epoch of a member.")
    if len(call.rack_id or "") > RACK_LENGTH_MAX:
        raise InvalidRequest(f"The name of a rack has at most {RACK_LENGTH_MAX} characters.")
    if sum(map(len, call.subscribed_topics or ())) > SUBSCRIPTION_LENGTH_MAX:
        raise InvalidRequest(
            f"The names that a member subscribes to have at most {SUBSCRIPTION_LENGTH_MAX} "
            "characters together."
        )


def _unknown(call: ShareHeartbeat) -> UnknownMember:
    return UnknownMember(call.group_id, call.member_id)
