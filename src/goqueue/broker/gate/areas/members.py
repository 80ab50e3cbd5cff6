"""Operations of stream group members that fetch from partitions themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from goqueue.broker.gate.forwarding import coordinator_of_call
from goqueue.broker.gate.operation import Area, group, operation
from goqueue.groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Done,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    LeavingMember,
    Sync,
    SyncResult,
)
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "STATIC_LEAVE_EPOCH",
    "ConsumerHeartbeat",
    "ConsumerHeartbeatResult",
    "Heartbeat",
    "Join",
    "JoinResult",
    "Leave",
    "LeaveResult",
    "LeavingMember",
    "MembersArea",
    "Sync",
    "SyncResult",
]


def with_member_id(broker: Broker, call: ConsumerHeartbeat) -> ConsumerHeartbeat:
    """Return the call with a generated member id if the member has none."""
    if call.member_id:
        return call
    return msgspec.structs.replace(call, member_id=broker.new_id().hex())


def check_subscription(
    area: Area, session: Session, action: Action, call: ConsumerHeartbeat
) -> None:
    """Raise unless the session may access the topics that a member subscribes to."""
    for name in call.subscribed_topics or ():
        area._check(session, action, Resource(ResourceKind.TOPIC, name))


def visible_assignment(
    area: Area, session: Session, answer: ConsumerHeartbeatResult
) -> ConsumerHeartbeatResult:
    """Leave out topics that match a regular expression, but that the session may not see."""
    if area._authoriser.is_open(session) or answer.assignment is None:
        return answer
    seen = frozenset(one for one in answer.assignment if area._sees_topic(session, one[0]))
    return msgspec.structs.replace(answer, assignment=seen)


class MembersArea(Area):
    """Members of stream groups: join, sync, heartbeat, leave."""

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def join(self, session: Session, *, call: Join) -> JoinResult:
        """Join a group whose leader assigns partitions, or its next generation."""
        name = call.instance_id or call.client_id or "member"
        new_id = f"{name}-{self._broker.new_id().hex()}"
        await self._broker.groups.ensure_topic()
        return await self._broker.groups.join(msgspec.structs.replace(call, new_member_id=new_id))

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    def sync(self, session: Session, *, call: Sync) -> Promise[SyncResult]:
        """Send the assignments, as the leader of a group, or get the member's own."""
        return self._broker.groups.sync(call)

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    def heartbeat(self, session: Session, *, call: Heartbeat) -> Promise[Done]:
        """Stay in a group."""
        return self._broker.groups.heartbeat(call)

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    def leave(self, session: Session, *, call: Leave) -> Promise[LeaveResult]:
        """Remove members from a group; return an error for each that cannot be removed."""
        return self._broker.groups.leave(call)

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def consumer_heartbeat(
        self, session: Session, *, call: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult:
        """Join, stay in or leave a group whose coordinator assigns partitions."""
        check_subscription(self, session, Action.DESCRIBE, call)
        await self._broker.groups.ensure_topic()
        answer = await self._broker.groups.consumer_heartbeat(with_member_id(self._broker, call))
        return visible_assignment(self, session, answer)
