"""Events for tests of journeys."""

from __future__ import annotations

from goqueue.tracing.events import Details, Event, Kind, Link
from goqueue.tracing.timeline import Message

ORDER = Message("orders", 0, 7)
SCHEDULE = Message("__scheduled", 3, 40)
LETTER = Message("orders.dead", 1, 2)
AGAIN = Message("orders", 0, 90)


def event(
    kind: Kind,
    message: Message,
    time_ms: int,
    *,
    to: Message | None = None,
    group: str = "",
    attempt: int = 0,
    consumer: str = "",
    reason: str = "",
) -> Event:
    """An event that happened to a message and to its two neighbours, at the same time."""
    details = Details(kind, 1, group=group, attempt=attempt, consumer=consumer, reason=reason)
    link = None if to is None else Link(to.topic, to.partition, to.offset - 1)
    first = message.offset - 1
    return Event(details, first, first + 3, time_ms, time_ms, link=link)
