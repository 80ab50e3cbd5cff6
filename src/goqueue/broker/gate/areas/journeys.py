"""Operations on journeys: what happened to a message, and which messages something happened to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from goqueue.broker.gate.charges import as_it_reads
from goqueue.broker.gate.journeys.views import (
    JourneyCount,
    JourneyEntry,
    JourneyEvent,
    JourneyEvents,
    JourneyMessage,
    JourneyPage,
    JourneyRow,
    JourneyStanding,
    JourneyStats,
    JourneyView,
    Selection,
)
from goqueue.broker.gate.operation import Area, Arguments, cluster, operation
from goqueue.broker.journeys.queries import CountedEvents, FoundEvents, JournalQuery
from goqueue.loop.promise import Cancellation
from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind
from goqueue.model.errors import InvalidRequest
from goqueue.model.names import JOURNEYS_TOPIC
from goqueue.model.session import NODE_PRINCIPAL, Session
from goqueue.model.tenants import Text, TopicName
from goqueue.tracing.outcomes import Outcome

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.gate.journeys.queries import JourneyQueries
    from goqueue.broker.journeys.searching import JournalSearch

__all__ = [
    "JourneyCount",
    "JourneyEntry",
    "JourneyEvent",
    "JourneyEvents",
    "JourneyMessage",
    "JourneyPage",
    "JourneyRow",
    "JourneyStanding",
    "JourneyStats",
    "JourneyView",
    "JourneysArea",
    "Outcome",
    "Selection",
]


def _selected_topic(arguments: Arguments) -> Iterable[Resource]:
    """The topic that is selected; without one, rows of topics that may not be read are left out."""
    name = arguments["selection"].topic
    return (Resource(ResourceKind.TOPIC, name),) if name else ()


def _topic_of_message(arguments: Arguments) -> Iterable[Resource]:
    return (Resource(ResourceKind.TOPIC, arguments["topic"]),)


_selected_topic.__name__ = _topic_of_message.__name__ = "topic"


def _journal_leader(broker: Broker, arguments: Arguments) -> int | None:
    """Return the leader of a partition of the journal."""
    found = broker.topics.find(JOURNEYS_TOPIC)
    number = arguments["number"]
    if found is None or broker.leaders.is_here(found, number):
        return None
    return broker.leaders.node_of(found, number)


class JourneysArea(Area):
    """Journeys: what happened to messages."""

    @cached_property
    def _queries(self) -> JourneyQueries:
        """What performs these operations."""
        # Imported here, because most nodes are asked for no journey.
        from goqueue.broker.gate.journeys.queries import JourneyQueries

        return JourneyQueries(self)

    @property
    def journal(self) -> JournalSearch:
        """What finds events in the partitions of the journal that this node leads."""
        return self._queries.journal

    @operation(Action.READ, _topic_of_message, is_reading=True, charges=as_it_reads)
    async def get(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int,
        offset: int,
        cancellation: Cancellation,
    ) -> JourneyView:
        """Return the journey of a message, with the messages that it came from and became.

        Groups that the session may not describe, and messages of topics that it may not read, are
        left out.
        """
        return await self._queries.get(session, topic, partition, offset, cancellation=cancellation)

    @operation(Action.READ, _topic_of_message, is_reading=True, charges=as_it_reads)
    async def get_scheduled(
        self,
        session: Session,
        *,
        topic: TopicName,
        schedule_id: Text,
        cancellation: Cancellation,
    ) -> JourneyView:
        """Return the journey of a message that is, or was, scheduled for a topic."""
        return await self._queries.get_scheduled(
            session, topic, schedule_id, cancellation=cancellation
        )

    @operation(Action.READ, _selected_topic, is_reading=True, charges=as_it_reads)
    async def list(
        self,
        session: Session,
        *,
        selection: Selection,
        limit: int,
        cursor: Text = "",
        cancellation: Cancellation,
    ) -> JourneyPage:
        """Return journeys by topic, group, outcome, time, key or trace id, the oldest first."""
        return await self._queries.list(
            session, selection, limit=limit, cursor=cursor, cancellation=cancellation
        )

    @operation(Action.READ, _selected_topic, is_reading=True, charges=as_it_reads)
    async def stats(
        self, session: Session, *, selection: Selection, cancellation: Cancellation
    ) -> JourneyStats:
        """Count the messages that something happened to, by kind and group."""
        if not selection.topic:
            raise InvalidRequest("Statistics are those of a topic; name it.")
        return await self._queries.stats(session, selection, cancellation)

    @operation(Action.READ, _selected_topic, is_reading=True, charges=as_it_reads)
    async def events(
        self,
        session: Session,
        *,
        selection: Selection,
        limit: int,
        cursor: Text = "",
        wait_ms: int = 0,
        cancellation: Cancellation,
    ) -> JourneyEvents:
        """Return recorded events in the order of the journal; without a cursor or time, new ones.

        Waits for the first one if there is none.
        """
        return await self._queries.events(
            session,
            selection,
            limit=limit,
            cursor=cursor,
            wait_ms=wait_ms,
            cancellation=cancellation,
        )

    # On the leaders of the journal

    @operation(Action.CLUSTER_ACTION, cluster, owner=_journal_leader, is_reading=True)
    async def find_events(
        self,
        session: Session,
        *,
        number: int,
        query: JournalQuery,
        begin: int,
        cancellation: Cancellation,
    ) -> FoundEvents:
        """Find events in one partition of the journal: a part of the other operations."""
        self._check_internal(session)
        if self._broker.topics.find(JOURNEYS_TOPIC) is None:
            return FoundEvents([], begin, True)
        return await self._queries.journal.find(
            number, query, begin=begin, cancellation=cancellation
        )

    @operation(Action.CLUSTER_ACTION, cluster, owner=_journal_leader, is_reading=True)
    async def count_events(
        self,
        session: Session,
        *,
        number: int,
        query: JournalQuery,
        begin: int,
        cancellation: Cancellation,
    ) -> CountedEvents:
        """Count events in one partition of the journal: a part of `stats`."""
        self._check_internal(session)
        if self._broker.topics.find(JOURNEYS_TOPIC) is None:
            return CountedEvents([], begin, True)
        return await self._queries.journal.count(
            number, query, begin=begin, cancellation=cancellation
        )

    def _check_internal(self, session: Session) -> None:
        """Raise unless a node calls: what it gets is not filtered by what a client may see."""
        if session.principal != NODE_PRINCIPAL:
            raise self._denial(session, Action.CLUSTER_ACTION, CLUSTER)
