"""Merging of events: what happened to a message stays in its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from goqueue.tracing.events import Details, Event, Kind, Link
from goqueue.tracing.gathering import CANDIDATES_MAX, MERGED_MS_MAX, merge

DELIVERED, ACKED = Details(Kind.DELIVERED, group="shop"), Details(Kind.ACKED, group="shop")


def event(details: Details, first: int, end: int, time_ms: int = 0) -> Event:
    return Event(details, first, end, time_ms, time_ms)


def history(events: list[Event], offset: int) -> list[Kind]:
    return [one.kind for one in events if one.first <= offset < one.end]


def test_adjacent_events_of_equal_details_become_one() -> None:
    merged = merge([event(DELIVERED, 0, 2, 1), event(DELIVERED, 2, 5, 3)])
    assert merged == [Event(DELIVERED, 0, 5, 1, 3)]


def test_what_is_far_apart_or_differs_stays_apart() -> None:
    late = [event(ACKED, 0, 1, 0), event(ACKED, 1, 2, MERGED_MS_MAX + 1)]
    gap = [event(ACKED, 0, 1), event(ACKED, 2, 3)]
    back = [event(ACKED, 0, 1, 5), event(ACKED, 1, 2, 4)]
    due = [event(ACKED, 0, 1)._replace(due_ms=10), event(ACKED, 1, 2)._replace(due_ms=20)]
    for events in (late, gap, back, due):
        assert merge(events) == events


def test_links_must_continue_too() -> None:
    first = event(ACKED, 0, 2)._replace(link=Link("orders", 0, 10))
    following = event(ACKED, 2, 3)
    continued = following._replace(link=Link("orders", 0, 12))
    jumping = following._replace(link=Link("orders", 0, 13))
    assert merge([first, continued]) == [first._replace(end=3)]
    assert merge([first, jumping]) == [first, jumping]


def test_an_ack_is_not_merged_with_one_before_the_delivery_of_its_message() -> None:
    merged = merge(
        [
            event(DELIVERED, 0, 1, 1),
            event(ACKED, 0, 1, 2),
            event(Details(Kind.DELIVERED, group="shop", attempt=2), 1, 2, 3),
            event(ACKED, 1, 2, 4),
        ]
    )
    assert history(merged, 1) == [Kind.DELIVERED, Kind.ACKED]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(Kind)), st.integers(0, 6), st.integers(1, 3), st.integers(0, 2)
        ),
        max_size=30,
    )
)
def test_every_message_has_its_events_in_their_order(
    drawn: list[tuple[Kind, int, int, int]],
) -> None:
    events = [
        event(Details(kind, attempt=attempt), first, first + count)
        for kind, first, count, attempt in drawn
    ]
    merged = merge(events)
    for offset in range(10):
        assert history(merged, offset) == history(events, offset)


def test_candidates_are_bounded() -> None:
    many = [event(Details(Kind.ACKED, attempt=one), one, one + 1) for one in range(200)]
    assert merge(many * 2) == many * 2
    assert len(many) > CANDIDATES_MAX
