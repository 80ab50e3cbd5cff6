"""The spans of a message: its stages, with ids that follow from what they are about."""

from __future__ import annotations

import pytest

from goqueue.tracing.events import Details, Event, Kind, Link, Place
from goqueue.tracing.spans import (
    Context,
    Span,
    Traced,
    chosen,
    is_chosen,
    read_context,
    span_id_of,
    spans_of,
    trace_id_of,
)

PLACE = Place("~acme~orders", b"t" * 16, 3)
LETTERS = b"d" * 16
OFFSET = 7
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PRODUCER = Context(bytes.fromhex(TRACE), bytes.fromhex(SPAN), True)
MESSAGE = Traced(PLACE, OFFSET, PRODUCER)


def event(kind: Kind, time_ms: int, group: str = "", **more: object) -> Event:
    due_ms, link = more.pop("due_ms", 0), more.pop("link", None)
    details = Details(kind, 1, group, **more)  # type: ignore[arg-type]
    return Event(details, 5, 10, time_ms, time_ms, 0, due_ms, link)  # type: ignore[arg-type]


LETTER = Link("~acme~orders.dlq", 0, 40)
JOURNEY = [
    event(Kind.RECEIVED, 100, principal="User:anna", client_id="shop-1"),
    event(Kind.STORED, 110, replicas=3),
    event(Kind.DELIVERED, 200, "~acme~billing", consumer="anna", attempt=1),
    event(Kind.NACKED, 250, "~acme~billing", due_ms=1_250),
    event(Kind.DELIVERED, 1_300, "~acme~billing", consumer="bert", attempt=2),
    event(Kind.LEASE_EXPIRED, 1_400, "~acme~billing"),
    event(Kind.DEAD_LETTERED, 1_420, "~acme~billing", reason="exhausted", link=LETTER),
]


def find_topic(name: str) -> bytes | None:
    return LETTERS if name == LETTER.topic else None


def spans(events: list[Event] = JOURNEY, traced: Traced = MESSAGE, known: int = 0) -> list[Span]:
    return spans_of(traced, events, find_topic, known=known)


def test_every_stage_with_a_duration_is_a_span() -> None:
    assert [(one.name, one.start_ms, one.end_ms, one.error) for one in spans()] == [
        ("persist orders", 100, 110, ""),
        ("wait orders", 110, 200, ""),
        ("hold orders", 200, 250, ""),
        ("wait orders", 1_250, 1_300, ""),
        ("hold orders", 1_300, 1_400, "lease_expired"),
        ("dead_letter orders", 1_400, 1_420, "dead_lettered"),
    ]


def test_attributes_are_those_of_the_conventions() -> None:
    persist, _, hold, *_ = spans()
    assert dict(persist.attributes) == {
        "messaging.system": "goqueue",
        "messaging.operation.name": "persist",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.message.id": "orders:3:7",
        "messaging.kafka.offset": 7,
        "messaging.client.id": "shop-1",
        "goqueue.tenant": "acme",
        "goqueue.node.id": "1",
    }
    assert ("messaging.consumer.group.name", "billing") in hold.attributes
    assert ("goqueue.delivery.attempt", 1) in hold.attributes
    assert ("goqueue.consumer", "anna") in hold.attributes


def test_what_happened_at_one_time_is_an_event_of_a_span() -> None:
    found = [(one.name, event.name, event.time_ms) for one in spans() for event in one.events]
    assert found == [
        ("persist orders", "replicated", 110),
        ("hold orders", "nacked", 250),
        ("hold orders", "lease_expired", 1_400),
        ("dead_letter orders", "dead_lettered", 1_420),
    ]
    [letter] = spans()[-1].events
    assert dict(letter.attributes) == {
        "goqueue.reason": "exhausted",
        "goqueue.target": "orders.dlq:0:42",
    }


def test_spans_are_linked_to_that_of_the_producer() -> None:
    producer = (PRODUCER.trace_id, PRODUCER.span_id)
    trace_id = trace_id_of(PLACE.topic_id, 3, OFFSET)
    first, *rest = spans()
    assert (first.trace_id, first.parent_id) == (trace_id, b"")
    for one in (first, *rest):
        assert one.links[0] == producer
    assert {(one.trace_id, one.parent_id) for one in rest} == {(trace_id, first.span_id)}


def test_spans_can_be_children_of_that_of_the_producer() -> None:
    for one in spans(traced=MESSAGE._replace(is_child=True)):
        assert (one.trace_id, one.parent_id) == (PRODUCER.trace_id, PRODUCER.span_id)


def test_a_message_without_a_producer_s_span_has_a_trace_of_its_own() -> None:
    found = spans(traced=Traced(PLACE, OFFSET))
    assert {one.trace_id for one in found} == {trace_id_of(PLACE.topic_id, 3, OFFSET)}
    assert [one.links for one in found[:-1]] == [()] * 5


def test_a_dead_letter_is_linked() -> None:
    [link] = spans(traced=Traced(PLACE, OFFSET))[-1].links
    kinds = (Kind.RECEIVED, Kind.STORED)
    events = [Event(Details(kind), 40, 45, 1, 1) for kind in kinds]
    letter = Traced(Place("~acme~orders.dlq", LETTERS, 0), 42)
    [arrived] = spans_of(letter, events, find_topic)
    assert link == (arrived.trace_id, arrived.span_id)


def test_the_same_journal_gives_the_same_spans_however_it_is_divided() -> None:
    whole = spans()
    assert len({one.span_id for one in whole}) == len(whole)
    for place in range(len(JOURNEY) + 1):
        assert spans(JOURNEY[:place]) + spans(known=place) == whole


def test_a_delivery_that_is_in_the_journal_before_the_commit_waits_for_it() -> None:
    received, stored, delivered, *_ = JOURNEY
    found = spans([received, delivered, stored])
    assert [(one.name, one.start_ms, one.end_ms) for one in found] == [
        ("persist orders", 100, 110),
        ("wait orders", 110, 200),
    ]


def test_a_settlement_that_was_merged_with_an_earlier_one_waits_for_its_delivery() -> None:
    acked = Event(Details(Kind.ACKED, 1, "g"), 5, 10, 195, 203)
    found = spans([*JOURNEY[:2], acked, event(Kind.DELIVERED, 200, "g", attempt=1)])
    assert [(one.name, one.start_ms, one.end_ms) for one in found[1:]] == [
        ("wait orders", 110, 200),
        ("hold orders", 200, 200),
    ]


def test_a_settlement_of_a_lost_delivery_is_not_that_of_a_later_one() -> None:
    found = spans([*JOURNEY[:2], event(Kind.NACKED, 150, "g"), event(Kind.DELIVERED, 200, "g")])
    assert [one.name for one in found[1:]] == ["wait orders"]


def test_groups_have_spans_of_their_own() -> None:
    others = [one._replace(details=one.details._replace(group="other")) for one in JOURNEY[2:4]]
    found = spans([*JOURNEY[:4], *others])
    assert len({one.span_id for one in found}) == len(found) == 5


def test_a_schedule_lasts_until_the_message_is_released() -> None:
    place = Place("__scheduled", b"s" * 16, 0)
    target = Link("orders.dlq", 0, -1)
    events = [
        event(Kind.SCHEDULED, 100, due_ms=900, link=target),
        event(Kind.RELEASED, 910, link=LETTER),
    ]
    [schedule] = spans_of(Traced(place, OFFSET), events, find_topic)
    assert (schedule.name, schedule.start_ms, schedule.end_ms) == (
        "schedule orders.dlq",
        100,
        910,
    )
    assert schedule.parent_id == b""
    assert [one.trace_id for one in schedule.links] == [trace_id_of(LETTERS, 0, 42)]


def test_messages_that_expire_unseen_have_waited_in_vain() -> None:
    found = spans([*JOURNEY[:2], event(Kind.EXPIRED, 500, "billing")])
    assert [(one.name, one.end_ms, one.error) for one in found[1:]] == [
        ("wait orders", 500, "expired")
    ]


def test_a_redriven_dead_letter_has_rested() -> None:
    redriven = event(Kind.REDRIVEN, 900, link=LETTER)
    last = spans([*JOURNEY[:2], redriven])[-1]
    assert (last.name, last.start_ms, last.end_ms, last.error) == ("redrive orders", 110, 900, "")
    assert [one.name for one in last.events] == ["redriven"]


@pytest.mark.parametrize(
    ("header", "is_sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"cc-{TRACE}-{SPAN}-03-more", True),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        ("", None),
        ("00-x", None),
    ],
)
def test_a_trace_context_is_read_as_the_standard_says(header: str, is_sampled: bool | None) -> None:
    found = read_context(header.encode())
    assert (None if found is None else found.is_sampled) is is_sampled
    assert found is None or found[:2] == PRODUCER[:2]


@pytest.mark.parametrize("every", [1, 3, 10, 1_000])
def test_one_in_so_many_messages_is_chosen_however_ranges_are_divided(every: int) -> None:
    whole = list(chosen(PLACE, 0, 5_000, every))
    assert whole == [one for one in range(5_000) if is_chosen(PLACE, one, every)]
    assert whole == [*chosen(PLACE, 0, 1_234, every), *chosen(PLACE, 1_234, 5_000, every)]
    assert len(whole) == pytest.approx(5_000 / every, abs=1)
    assert not chosen(PLACE, 0, 5_000, 0)


def test_ids_of_different_things_differ() -> None:
    place = (PLACE.topic_id, 3, OFFSET)
    ids = {span_id_of(*place, stage, group, attempt) for stage, group, attempt in _things()}
    assert len(ids) == len(_things())


def _things() -> list[tuple[object, str, int]]:
    from goqueue.tracing.spans import Stage

    return [(stage, group, attempt) for stage in Stage for group in ("", "a") for attempt in (0, 1)]
