"""Operations of the members of stream groups that poll, and leave their positions to the broker."""

from __future__ import annotations

from goqueue.broker.gate.group_owners import coordinator_of_call
from goqueue.broker.gate.members import with_member_id
from goqueue.broker.gate.operation import Area, group, operation
from goqueue.broker.streams.polling import (
    Poll,
    Polled,
    PolledRecord,
    PositionReset,
    UnreadableRange,
)
from goqueue.groups import ConsumerHeartbeat, ConsumerHeartbeatResult
from goqueue.loop.cancellation import Cancellation
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.session import Session

__all__ = [
    "Poll",
    "Polled",
    "PolledRecord",
    "PollingArea",
    "PositionReset",
    "UnreadableRange",
]


class PollingArea(Area):
    """Members that poll: join, heartbeat, poll, leave."""

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def join(self, session: Session, *, call: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """Enter a group; what an earlier member of the id was given is forgotten."""
        return await self._broker.stream_polling.join(with_member_id(self._broker, call))

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def heartbeat(
        self, session: Session, *, call: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult:
        """Stay in a group, confirm what was given up, get what to hold."""
        return await self._broker.stream_polling.heartbeat(call)

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def leave(self, session: Session, *, call: ConsumerHeartbeat) -> None:
        """Leave a group; the partitions go to the other members at once."""
        await self._broker.stream_polling.leave(call)

    # Its answer may be lost between nodes as it may be on the way to the client, whose `after`
    # takes back what was handed out with it. So it may be repeated.
    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call, is_reading=True)
    async def poll(
        self, session: Session, *, call: Poll, wait_ms: int, cancellation: Cancellation
    ) -> Polled:
        """Read on in the partitions of a member, waiting for records if there are none."""

        def check_topic(name: str) -> None:
            self._check(session, Action.READ, Resource(ResourceKind.TOPIC, name))

        return await self._broker.stream_polling.poll(
            call,
            wait_ms=wait_ms,
            cancellation=cancellation,
            check_topic=None if self._gate.policy is None else check_topic,
        )
