"""Operations of stream group members that poll, and whose positions the broker tracks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import groupby
from operator import attrgetter

from goqueue.broker.gate.areas.members import (
    check_subscription,
    visible_assignment,
    with_member_id,
)
from goqueue.broker.gate.areas.records import report_read
from goqueue.broker.gate.charges import records_of_poll
from goqueue.broker.gate.forwarding import coordinator_of_call
from goqueue.broker.gate.operation import Area, group, operation
from goqueue.broker.streams.polling import (
    Poll,
    Polled,
    PolledRecord,
    PositionReset,
    UnreadableRange,
)
from goqueue.groups import ConsumerHeartbeat, ConsumerHeartbeatResult
from goqueue.loop.promise import Cancellation
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
        """Join a group; the state of an earlier member with the same id is dropped."""
        check_subscription(self, session, Action.READ, call)
        answer = await self._broker.stream_polling.join(with_member_id(self._broker, call))
        return visible_assignment(self, session, answer)

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def heartbeat(
        self, session: Session, *, call: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult:
        """Stay in a group, confirm revoked partitions, and get the assigned ones."""
        check_subscription(self, session, Action.READ, call)
        answer = await self._broker.stream_polling.heartbeat(call)
        return visible_assignment(self, session, answer)

    @operation(Action.READ, group("call.group_id"), owner=coordinator_of_call)
    async def leave(self, session: Session, *, call: ConsumerHeartbeat) -> None:
        """Leave a group; its partitions go to the other members at once."""
        await self._broker.stream_polling.leave(call)

    # The response may be lost between nodes or on the way to the client, whose `after` takes back
    # what was delivered with it. So it may be repeated.
    @operation(
        Action.READ,
        group("call.group_id"),
        owner=coordinator_of_call,
        is_reading=True,
        charges=records_of_poll,
    )
    async def poll(
        self, session: Session, *, call: Poll, wait_ms: int, cancellation: Cancellation
    ) -> Polled:
        """Read on in the partitions of a member, waiting for records if there are none."""
        poll = partial(
            self._broker.stream_polling.poll, call, wait_ms=wait_ms, cancellation=cancellation
        )
        if self._authoriser.is_open(session):
            polled = await poll()
        else:
            polled = await poll(may_read=self._reading(session, call))
            if polled.assignment is not None:
                seen = [one for one in polled.assignment if self._sees_topic(session, one[0])]
                polled = polled._replace(assignment=frozenset(seen))
        for topic, records in groupby(polled.records, key=attrgetter("topic")):
            report_read(self._broker, session, topic, [one.record for one in records])
        return polled

    def _reading(self, session: Session, call: Poll) -> Callable[[str], bool]:
        """Return what decides whether a member reads a topic that is assigned to it."""

        def may_read(name: str) -> bool:
            # A regular expression may match topics that the session must not learn about.
            if not self._sees_topic(session, name) and name not in self._named(call):
                return False
            self._check(session, Action.READ, Resource(ResourceKind.TOPIC, name))
            return True

        return may_read

    def _named(self, call: Poll) -> Collection[str]:
        """Return the topics that a member subscribes to by their names."""
        members = self._broker.groups.describe(call.group_id).members
        mine = [one for one in members if one.member_id == call.member_id]
        return mine[0].subscribed_topics if mine else ()
