"""Operations on scheduled messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.broker.gate.charges import scheduled_message
from goqueue.broker.gate.operation import Area, Arguments, cluster, named_by_owner, operation, topic
from goqueue.broker.schedules.listing import (
    Schedule,
    SchedulePage,
    ScheduleStats,
)
from goqueue.delivery.schedules import NEVER_MS
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied, GoQueueError, InvalidRequest, UnknownSchedule
from goqueue.model.session import Session
from goqueue.model.tenants import Text, TopicName

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "INTERVALS_MAX",
    "NEVER_MS",
    "Calendar",
    "Schedule",
    "SchedulePage",
    "ScheduleStats",
    "SchedulesArea",
]


Outcomes = list[GoQueueError | None]
INTERVALS_MAX = 500


class Calendar(NamedTuple):
    """How many messages are due in each interval."""

    nodes: list[int]  # that have answered
    counts: Sequence[int]


def _add_up(_: Arguments, answers: Sequence[Calendar]) -> Calendar:
    """Add up the nodes, each of which has its own messages."""
    return Calendar(
        [node for one in answers for node in one.nodes],
        [sum(counts) for counts in zip(*(one.counts for one in answers), strict=True)],
    )


def _owner(broker: Broker, arguments: Arguments) -> int:
    return broker.schedules.owner_of(arguments["schedule_id"])


class SchedulesArea(Area):
    """Scheduled messages: list, count, show, move, cancel."""

    @operation(Action.DESCRIBE, topic(), is_reading=True)
    def list(
        self,
        session: Session,
        *,
        topic: TopicName | None,
        from_ms: int,
        until_ms: int,
        limit: int,
        after: Text,
    ) -> Promise[SchedulePage]:
        """Return scheduled messages by due time, after a cursor.

        Without a topic, those of all topics that the session may describe.
        """
        return self._broker.schedules.list(
            topics=self._wanted(session, topic),
            from_ms=from_ms,
            until_ms=until_ms,
            limit=limit,
            after=after,
        )

    @operation(Action.DESCRIBE, topic(), is_reading=True)
    def count(
        self, session: Session, *, topic: TopicName | None, from_ms: int, until_ms: int
    ) -> Promise[int]:
        """Count the scheduled messages of a topic, or of all that the session may describe."""
        topics = self._wanted(session, topic)
        return self._broker.schedules.count(topics=topics, from_ms=from_ms, until_ms=until_ms)

    @operation(Action.DESCRIBE, topic(), merge=_add_up, is_reading=True, is_partial=True)
    async def calendar(
        self, session: Session, *, topic: TopicName | None, times_ms: Sequence[int]
    ) -> Calendar:
        """Count the messages that are due between times, on the nodes that can be reached."""
        if not 2 <= len(times_ms) <= INTERVALS_MAX + 1 or sorted(times_ms) != [*times_ms]:
            raise InvalidRequest(f"A calendar has 1 to {INTERVALS_MAX} intervals, in order.")
        counts = await self._broker.schedules.calendar_here(
            topics=self._wanted(session, topic), times_ms=times_ms
        )
        return Calendar([self._broker.node_id], counts)

    def _wanted(self, session: Session, topic: str | None) -> frozenset[str] | None:
        """Return the named topic or those that the session may describe; None for all."""
        if topic is not None:
            return frozenset({topic})
        if self._authoriser.is_open(session):
            return None
        names = [one.name for one in self._broker.topics]
        return frozenset(name for name in names if self._sees_topic(session, name))

    @operation(Action.DESCRIBE, cluster, is_reading=True)
    def stats(self, session: Session) -> Promise[ScheduleStats]:
        """Return how many messages are scheduled, and how late messages were released."""
        return self._broker.schedules.stats_of_all()

    @operation(
        Action.READ, named_by_owner, owner=_owner, is_reading=True, charges=scheduled_message
    )
    async def show(self, session: Session, *, schedule_id: Text) -> Schedule:
        """Return a scheduled message."""
        found = self._broker.schedules.get(schedule_id)
        self._check_topic(session, Action.READ, schedule_id, found.topic)
        return found

    @operation(Action.WRITE, named_by_owner, owner=_owner)
    def move(self, session: Session, *, schedule_id: Text, due_ms: int) -> Promise[None]:
        """Change the due time of a message."""
        self._check_write(session, schedule_id)
        return self._broker.schedules.reschedule(schedule_id, due_ms)

    @operation(Action.WRITE, named_by_owner, owner=_owner)
    def cancel(self, session: Session, *, schedule_id: Text) -> Promise[None]:
        """Cancel a message."""
        self._check_write(session, schedule_id)
        return self._broker.schedules.cancel(schedule_id)

    @operation(Action.WRITE, named_by_owner)
    async def cancel_many(self, session: Session, *, schedule_ids: Sequence[Text]) -> Outcomes:
        """Cancel messages; return an error for each that cannot be cancelled."""
        if self._authoriser.is_open(session):
            return await self._broker.schedules.cancel_many(schedule_ids)
        # Only the owner of a message has its topic, and can check access to it.
        calls = [self.cancel(session, schedule_id=one) for one in schedule_ids]
        outcomes: Outcomes = []
        for call in calls:
            try:
                await call
                outcomes.append(None)
            except GoQueueError as error:
                outcomes.append(error)
        return outcomes

    def _check_write(self, session: Session, schedule_id: str) -> None:
        if not self._authoriser.is_open(session):
            topic = self._broker.schedules.get(schedule_id).topic
            self._check_topic(session, Action.WRITE, schedule_id, topic)

    def _check_topic(self, session: Session, action: Action, schedule_id: str, name: str) -> None:
        """Raise unless the session may access the topic; an id must not reveal its name."""
        try:
            self._check(session, action, Resource(ResourceKind.TOPIC, name))
        except AccessDenied as error:
            if error.is_hidden:
                raise UnknownSchedule(schedule_id) from None
            raise
