"""Which events queries select, and which messages of an event."""

from __future__ import annotations

from goqueue.tracing.events import Details, Event, Kind
from goqueue.tracing.filters import Counts, EventFilter, count_events, kinds_for, stands
from goqueue.tracing.outcomes import Outcome
from goqueue.tracing.timeline import Message, Standing

STORED = Event(Details(Kind.RECEIVED, 1), 100, 200, 1000, 1990, size=5000)
ACKED = Event(Details(Kind.ACKED, 1, group="g"), 100, 101, 3000, 3000)


def test_events_are_selected_by_kind_group_and_time() -> None:
    assert EventFilter().selects(STORED)
    assert EventFilter(kinds=frozenset({Kind.ACKED})).selects(ACKED)
    assert not EventFilter(kinds=frozenset({Kind.ACKED})).selects(STORED)
    assert EventFilter(group="g").selects(ACKED)
    assert not EventFilter(group="other").selects(ACKED)
    assert EventFilter(from_ms=1990).selects(STORED)
    assert not EventFilter(from_ms=1991).selects(STORED)
    assert EventFilter(until_ms=1001).selects(STORED)
    assert not EventFilter(until_ms=1000).selects(STORED)


def test_a_time_selects_a_part_of_an_event() -> None:
    assert EventFilter().offsets(STORED) == range(100, 200)
    assert EventFilter(from_ms=1500).offsets(STORED) == range(150, 200)
    assert EventFilter(until_ms=1500).offsets(STORED) == range(100, 150)
    assert EventFilter(from_ms=1500, until_ms=1501).offsets(STORED) == range(150, 151)


def test_every_outcome_has_kinds_of_events() -> None:
    assert all(kinds_for(outcome, "") for outcome in Outcome)
    assert kinds_for(None, "") == {Kind.RECEIVED, Kind.ARRIVED}
    assert kinds_for(None, "g") == frozenset()


def test_messages_are_counted_by_kind_and_group() -> None:
    counted = count_events([STORED, STORED, ACKED], EventFilter(from_ms=1500))
    assert counted == [Counts(Kind.RECEIVED, "", 100, 5000), Counts(Kind.ACKED, "g", 1, 0)]


def test_a_message_stands_as_wanted_in_the_group_that_is_wanted() -> None:
    message = Message("orders", 0, 1)
    standings = [
        Standing(message, "a", Outcome.ACKED, 1),
        Standing(message, "b", Outcome.DEAD, 2),
    ]
    assert stands(standings, Outcome.DEAD, "")
    assert stands(standings, Outcome.DEAD, "b")
    assert not stands(standings, Outcome.DEAD, "a")
    assert stands(standings, None, "a")
    assert not stands(standings, None, "c")
