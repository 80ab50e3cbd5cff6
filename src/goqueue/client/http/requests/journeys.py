"""Journeys: what happened to messages."""

from __future__ import annotations

from goqueue.client.http.moments import Duration, Moment, duration_ms, moment_ms
from goqueue.client.http.request import Request, path_of, query_of, reading
from goqueue.wire.http.bodies import journeys as bodies
from goqueue.wire.http.bodies.journeys import (
    Journey,
    JourneyEntry,
    JourneyEvent,
    JourneyEvents,
    JourneyMessage,
    JourneyOutcome,
    Journeys,
    JourneyStanding,
    JourneyStats,
    JourneySummary,
)

__all__ = [
    "Journey",
    "JourneyEntry",
    "JourneyEvent",
    "JourneyEvents",
    "JourneyMessage",
    "JourneyOutcome",
    "JourneyRequests",
    "JourneyStanding",
    "JourneyStats",
    "JourneySummary",
    "Journeys",
]

_read_journey = reading(Journey)
_read_journeys = reading(Journeys)
_read_stats = reading(JourneyStats)
_read_events = reading(JourneyEvents)


class JourneyRequests:
    def get(self, message_id: str, *, topic: str | None = None) -> Request[Journey]:
        """Return what happened to a message, given by `topic:partition:offset`.

        One that is or was delayed is also known by its schedule id; then name its topic.
        """
        query = bodies.GetJourney(topic=topic)
        return Request("GET", path_of("journeys", message_id), _read_journey, query_of(query))

    def list_page(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        group: str | None = None,
        outcome: JourneyOutcome | None = None,
        key: str | None = None,
        trace_id: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> Request[Journeys]:
        """Return journeys for which all conditions hold, the oldest first.

        A page may be empty before the end; the last one has an empty cursor.
        """
        query = bodies.ListJourneys(
            topic=topic,
            partition=partition,
            offset=offset,
            group=group,
            outcome=outcome,
            key=key,
            trace_id=trace_id,
            from_=_text(from_),
            until=_text(until),
            limit=limit,
            cursor=cursor,
        )
        return Request("GET", path_of("journeys"), _read_journeys, query_of(query))

    def stats(
        self,
        topic: str,
        *,
        partition: int | None = None,
        group: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[JourneyStats]:
        """Count the messages of a topic by what happened to them."""
        query = bodies.JourneyStatistics(
            topic=topic, partition=partition, group=group, from_=_text(from_), until=_text(until)
        )
        return Request("GET", path_of("journeys", "stats"), _read_stats, query_of(query))

    def events(
        self,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        outcome: JourneyOutcome | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
        limit: int = 100,
        cursor: str = "",
        wait: Duration = 0,
    ) -> Request[JourneyEvents]:
        """Return what happens to messages as it is recorded, from a time or a cursor on.

        Without both, it is what happens from now on.
        """
        query = bodies.ReadEvents(
            topic=topic,
            partition=partition,
            group=group,
            outcome=outcome,
            from_=_text(from_),
            until=_text(until),
            limit=limit,
            cursor=cursor,
            wait_ms=duration_ms(wait),
        )
        path = path_of("journeys", "events")
        return Request("GET", path, _read_events, query_of(query), wait_ms=query.wait_ms)


def _text(moment: Moment | None) -> str | None:
    return None if moment is None else str(moment_ms(moment))
