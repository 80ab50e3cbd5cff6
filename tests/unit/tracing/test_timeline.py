"""The order of journeys, how messages stand, and journeys whose clocks disagree."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from goqueue.tracing.events import Event, Kind
from goqueue.tracing.outcomes import Outcome
from goqueue.tracing.timeline import (
    Journey,
    Message,
    build_journey,
    linked_message,
    links_of,
)
from tests.unit.tracing.journeys import AGAIN, LETTER, ORDER, SCHEDULE, event

GROUP = "billing"
EVENTS: dict[Message, list[Event]] = {
    SCHEDULE: [
        event(Kind.SCHEDULED, SCHEDULE, 0),
        event(Kind.RELEASED, SCHEDULE, 100, to=ORDER),
    ],
    ORDER: [
        event(Kind.ARRIVED, ORDER, 101, to=SCHEDULE),
        event(Kind.STORED, ORDER, 102),
        event(Kind.DELIVERED, ORDER, 110, group=GROUP, attempt=1, consumer="c1"),
        event(Kind.NACKED, ORDER, 120, group=GROUP),
        event(Kind.DELIVERED, ORDER, 130, group=GROUP, attempt=2, consumer="c2"),
        event(Kind.LEASE_EXPIRED, ORDER, 160, group=GROUP),
        event(Kind.DEAD_LETTERED, ORDER, 170, group=GROUP, to=LETTER, reason="deliveries"),
    ],
    LETTER: [
        event(Kind.ARRIVED, LETTER, 171, to=ORDER),
        event(Kind.STORED, LETTER, 172),
        event(Kind.REDRIVEN, LETTER, 200, to=AGAIN),
    ],
    AGAIN: [
        event(Kind.ARRIVED, AGAIN, 201, to=LETTER),
        event(Kind.STORED, AGAIN, 202),
        event(Kind.DELIVERED, AGAIN, 210, group=GROUP, attempt=1, consumer="c3"),
        event(Kind.ACKED, AGAIN, 220, group=GROUP),
    ],
}
IN_ORDER = [(message, one.kind) for message, its in EVENTS.items() for one in its]


def order_of(journey: Journey) -> list[tuple[Message, Kind]]:
    return [(one.message, one.event.kind) for one in journey.entries]


def test_a_journey_is_in_order_with_the_time_between_events() -> None:
    journey = build_journey(ORDER, EVENTS)
    assert order_of(journey) == IN_ORDER
    assert list(journey.messages) == [SCHEDULE, ORDER, LETTER, AGAIN]
    assert [one.after_ms for one in journey.entries[:5]] == [0, 100, 1, 1, 8]


@pytest.mark.parametrize("seed", range(200))
def test_causes_come_first_whatever_the_clocks_of_the_nodes_say(seed: int) -> None:
    chance = random.Random(seed)
    events: dict[Message, Sequence[Event]] = {}
    for message in chance.sample(list(EVENTS), len(EVENTS)):
        skew_ms = chance.randint(-500, 500)
        events[message] = [
            one._replace(time_ms=one.time_ms + skew_ms, last_ms=one.last_ms + skew_ms)
            for one in EVENTS[message]
        ]
    assert order_of(build_journey(ORDER, events)) == IN_ORDER


@pytest.mark.parametrize("seed", range(50))
def test_a_message_is_received_and_stored_before_anything_else(seed: int) -> None:
    """Partition leaders and group owners write to the journal independently of each other."""
    chance = random.Random(seed)
    events = [event(Kind.RECEIVED, ORDER, 5), event(Kind.STORED, ORDER, 6)]
    delivered = [event(Kind.DELIVERED, ORDER, 4, group="a"), event(Kind.ACKED, ORDER, 9, group="a")]
    others = [event(Kind.CONSUMED, ORDER, 3, group="b")]
    merged = [*events, *delivered, *others]
    while True:
        chance.shuffle(merged)
        if merged.index(delivered[0]) < merged.index(delivered[1]):
            break
    kinds = [one.event.kind for one in build_journey(ORDER, {ORDER: merged}).entries]
    assert kinds == [Kind.RECEIVED, Kind.STORED, Kind.CONSUMED, Kind.DELIVERED, Kind.ACKED]


def test_a_move_is_dated_by_the_arrival_of_the_message() -> None:
    """It is recorded when it is complete; the message may have been delivered by then."""
    events = {
        SCHEDULE: [
            event(Kind.SCHEDULED, SCHEDULE, 0),
            event(Kind.RELEASED, SCHEDULE, 30, to=ORDER),
        ],
        ORDER: [
            event(Kind.RECEIVED, ORDER, 10),
            event(Kind.ARRIVED, ORDER, 30, to=SCHEDULE),
            event(Kind.STORED, ORDER, 12),
            event(Kind.DELIVERED, ORDER, 20, group=GROUP),
        ],
    }
    entries = build_journey(ORDER, events).entries
    assert [(one.event.kind, one.time_ms) for one in entries] == [
        (Kind.SCHEDULED, 0),
        (Kind.RELEASED, 10),
        (Kind.ARRIVED, 10),
        (Kind.STORED, 12),
        (Kind.DELIVERED, 20),
    ]


def test_links_that_contradict_each_other_lose_no_event() -> None:
    events = {
        ORDER: [event(Kind.DEAD_LETTERED, ORDER, 1, group=GROUP, to=LETTER)],
        LETTER: [event(Kind.DEAD_LETTERED, LETTER, 2, group=GROUP, to=ORDER)],
    }
    assert len(build_journey(ORDER, events).entries) == 2


def test_links_name_the_neighbours_of_a_message() -> None:
    links = links_of(EVENTS[ORDER], ORDER)
    assert [(kind, linked_message(link)) for kind, link in links] == [
        (Kind.ARRIVED, SCHEDULE),
        (Kind.DEAD_LETTERED, LETTER),
    ]


def standings(*events: Event, message: Message = ORDER) -> list[tuple[str, Outcome, int]]:
    journey = build_journey(message, {message: events})
    return [(one.group, one.outcome, one.attempts) for one in journey.standings]


def test_how_messages_stand() -> None:
    stored = [event(Kind.RECEIVED, ORDER, 1), event(Kind.STORED, ORDER, 2)]
    delivered = event(Kind.DELIVERED, ORDER, 3, group=GROUP, attempt=1)
    assert standings() == []
    assert standings(*stored) == [("", Outcome.STORED, 0)]
    assert standings(*stored, delivered) == [(GROUP, Outcome.IN_FLIGHT, 1)]
    for kind, outcome in (
        (Kind.ACKED, Outcome.ACKED),
        (Kind.NACKED, Outcome.WAITING),
        (Kind.LEASE_EXPIRED, Outcome.WAITING),
        (Kind.RETURNED, Outcome.WAITING),
        (Kind.REJECTED, Outcome.DEAD),
        (Kind.DEAD_LETTERED, Outcome.DEAD),
        (Kind.EXPIRED, Outcome.EXPIRED),
        (Kind.SKIPPED, Outcome.SKIPPED),
    ):
        assert standings(*stored, delivered, event(kind, ORDER, 4, group=GROUP)) == [
            (GROUP, outcome, 1)
        ]
    consumed = event(Kind.CONSUMED, ORDER, 9, group="stream")
    assert standings(*stored, consumed) == [("stream", Outcome.CONSUMED, 0)]
    assert standings(*stored, event(Kind.RETIRED, ORDER, 9)) == [("", Outcome.RETIRED, 0)]
    scheduled = event(Kind.SCHEDULED, SCHEDULE, 1)
    assert standings(scheduled, message=SCHEDULE) == [("", Outcome.SCHEDULED, 0)]


def test_a_group_stands_as_with_the_last_message() -> None:
    [standing] = build_journey(ORDER, EVENTS).standings
    assert (standing.message, standing.outcome) == (AGAIN, Outcome.ACKED)
    assert (standing.attempts, standing.consumer) == (1, "c3")
    before = {message: its for message, its in EVENTS.items() if message != AGAIN}
    dead, redriven = build_journey(ORDER, before).standings
    assert (dead.message, dead.outcome, dead.attempts) == (ORDER, Outcome.DEAD, 2)
    assert dead.reason == "deliveries"
    assert (redriven.message, redriven.outcome) == (LETTER, Outcome.REDRIVEN)
