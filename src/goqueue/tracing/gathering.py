"""Merges events before they are written: adjacent ranges of equal details that follow closely."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.tracing.events import Details, Event

# Events this close to each other may become one, whose messages then have interpolated times.
MERGED_MS_MAX = 10
CANDIDATES_MAX = 32  # events that others may be merged with


def merge(events: Iterable[Event]) -> list[Event]:
    """Merge events of one partition, each with the last one of equal details if it continues that.

    The result is in the order of the first events.
    """
    merged: list[Event] = []
    newest: dict[Details, int] = {}
    for event in events:
        place = newest.get(event.details)
        if place is not None and _continues(merged[place], event):
            merged[place] = _joined(merged[place], event)
        else:
            if len(newest) >= CANDIDATES_MAX:
                newest.clear()
            place = newest[event.details] = len(merged)
            merged.append(event)
        for details in _overtaken(newest, merged, event, place):
            del newest[details]
    return merged


def _overtaken(
    newest: dict[Details, int], merged: list[Event], event: Event, place: int
) -> list[Details]:
    """Return the candidates before `place` that could grow into the messages of the event there.

    What happens to those messages later must not be merged with them, because it would come first.
    """
    return [
        details
        for details, earlier in newest.items()
        if earlier < place and merged[earlier].end < event.end
    ]


def _continues(event: Event, following: Event) -> bool:
    return (
        following.first == event.end
        and 0 <= following.last_ms - event.time_ms <= MERGED_MS_MAX
        and following.due_ms == event.due_ms
        and following.link == event.link_of(following.first)
    )


def _joined(event: Event, following: Event) -> Event:
    return event._replace(
        end=following.end, last_ms=following.last_ms, size=event.size + following.size
    )
