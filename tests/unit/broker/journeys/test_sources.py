"""What is collected of the records of producers: merged when it happens, divided by commits."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.broker.journeys import sources
from goqueue.broker.journeys.sources import TopicSource
from goqueue.model.session import Session
from goqueue.tracing.encoding import decode_events, decode_key
from goqueue.tracing.events import Event, Kind, Place
from goqueue.tracing.gathering import MERGED_MS_MAX
from tests.unit.broker.node import Node

ANNA, BEN = Session("kafka", client_id="anna"), Session("kafka", client_id="ben")
T = 1_000_000


@pytest.fixture
def source() -> TopicSource:
    topic = Node().create("orders")
    place = Place(topic.name, topic.id, 0)
    made = TopicSource(place, topic.partition(0), number=0, node=1, replica_count=lambda *_: 1)
    made.sent = {0: 0}
    return made


def taken(source: TopicSource, kind: Kind) -> list[Event]:
    return [one for one in everything(source) if one.kind is kind]


def everything(source: TopicSource) -> list[Event]:
    found: list[Event] = []
    for _, piece in source.take():
        for key, value in piece.records:
            found += decode_events(decode_key(key).place, value)[1]
    return found


def test_batches_of_one_client_that_follow_closely_are_one_event(source: TopicSource) -> None:
    for number in range(100):
        source.appended(
            (number, number + 1), T + number // 20, 50, Session("kafka", client_id="anna")
        )
        source.committed(number + 1, T + 1 + number // 20)
    assert source.count == 2
    received, stored = everything(source)
    assert received[1:6] == (0, 100, T, T + 4, 5_000)
    assert stored[1:5] == (0, 100, T + 1, T + 5)
    assert (source.count, everything(source)) == (0, [])


def test_other_clients_gaps_and_later_batches_are_events_of_their_own(source: TopicSource) -> None:
    source.appended((0, 2), T, 10, ANNA)
    source.appended((2, 3), T, 10, BEN)
    source.appended((4, 5), T, 10, BEN)  # After a marker.
    source.appended((5, 6), T + MERGED_MS_MAX + 1, 10, BEN)
    source.appended((6, 7), T, 10, BEN)  # The clock was set back.
    source.committed(7, T)
    received = taken(source, Kind.RECEIVED)
    assert [(one.first, one.end) for one in received] == [(0, 2), (2, 3), (4, 5), (5, 6), (6, 7)]


def test_a_commit_divides_what_was_merged(source: TopicSource) -> None:
    for number in range(4):
        source.appended((number, number + 1), T + number, 25, ANNA)
    source.committed(3, T + 9)
    [received] = taken(source, Kind.RECEIVED)
    assert (received.first, received.end, received.size) == (0, 3, 75)
    source.appended((4, 5), T + 4, 25, ANNA)
    source.committed(5, T + 10)
    [rest] = taken(source, Kind.RECEIVED)
    assert (rest.first, rest.end, rest.size) == (3, 5, 50)
    assert T <= received.time_ms <= received.last_ms <= rest.time_ms <= rest.last_ms == T + 4


def test_what_is_not_collected_does_not_extend_what_was(source: TopicSource) -> None:
    source.appended((0, 1), T, 10, ANNA)
    source.committed(1, T)
    source.fall_behind()
    source.appended((1, 2), T, 10, ANNA)
    source.committed(2, T)
    assert source.count == 0
    source.hold(5)
    source.appended((2, 3), T, 10, ANNA)
    source.committed(5, T)
    assert source.count == 0
    source.appended((5, 6), T, 10, ANNA)
    source.committed(6, T)
    assert (source.count, everything(source)) == (2, [])
    source.is_held, source.sent = False, {0: 5}
    assert [(one.first, one.end) for one in everything(source)] == [(5, 6), (5, 6)]


def test_too_many_that_wait_for_a_commit_are_reported(
    source: TopicSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCHES_MAX", 3)
    full = [source.appended((one, one + 1), T + one * 20, 10, ANNA) for one in range(5)]
    assert full == [False, False, False, True, True]


@pytest.mark.seeds(20)
def test_each_message_is_received_and_stored_once_about_when_it_was(
    source: TopicSource, seed: int
) -> None:
    random, now_ms, end, committed = Random(seed), T, 0, 0
    batches: list[tuple[int, int, int, Session]] = []
    events: list[Event] = []
    commits: dict[int, int] = {}
    for _ in range(400):
        now_ms += random.choice((0, 0, 1, 3, 30))
        step = random.random()
        if step < 0.6:
            first, end = end, end + random.randint(1, 5)
            session = random.choice((ANNA, ANNA, ANNA, BEN))
            batches.append((first, end, now_ms, session))
            source.appended((first, end), now_ms, 10 * (end - first), session)
        elif step < 0.9 and committed < end:
            before, committed = (
                committed,
                random.choice([b[1] for b in batches if b[1] > committed]),
            )
            commits |= dict.fromkeys(range(before, committed), now_ms)
            source.committed(committed, now_ms)
        else:
            events += everything(source)
    source.committed(end, now_ms)
    commits |= dict.fromkeys(range(committed, end), now_ms)
    events += everything(source)
    received = [one for one in events if one.kind is Kind.RECEIVED]
    stored = [one for one in events if one.kind is Kind.STORED]
    for some in (received, stored):
        assert [one.first for one in some] == [0, *(one.end for one in some[:-1])]
        assert some[-1].end == end
    assert sum(one.size for one in received) == 10 * end
    for first, until, time_ms, session in batches:
        for offset in range(first, until):
            [event] = [one for one in received if one.first <= offset < one.end]
            assert event.details.client_id == session.client_id
            assert abs(event.time_of(offset) - time_ms) <= MERGED_MS_MAX
            [event] = [one for one in stored if one.first <= offset < one.end]
            assert abs(event.time_of(offset) - commits[offset]) <= MERGED_MS_MAX
