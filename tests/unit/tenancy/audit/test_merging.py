"""Merging of events: bounded whatever happens, and nothing is left out of the counts."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import AuthenticationFailed
from goqueue.model.session import Session
from goqueue.tenancy.audit import events
from goqueue.tenancy.audit.events import OTHERS, Event, Outcome
from goqueue.tenancy.audit.merging import Limits, Merged, Merger

LIMITS = Limits(events_max=50, events_per_source_max=10, sources_max=5)
INTERVAL_MS = 1_000


def a_denial(user: str, topic: str, *, host: str = "10.0.0.1") -> Event:
    session = Session("kafka", f"User:{user}", client_host=host, mechanism="password")
    resource = Resource(ResourceKind.TOPIC, topic)
    return events.denied(session, Action.READ, resource, operation="partitions")


def a_failure(user: str, host: str) -> Event:
    session = Session("kafka", client_host=host)
    return events.authenticated(session, user, "password", AuthenticationFailed())


class Flood:
    """Adds events at times, and notes what is written."""

    def __init__(self) -> None:
        self.merger = Merger(LIMITS, INTERVAL_MS)
        self.now_ms = 0
        self.written: list[Merged] = []

    def add(self, event: Event) -> None:
        merged = self.merger.add(event, now_ms=self.now_ms, wall_ms=self.now_ms)
        self.written += [merged] if merged is not None else []

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.written += self.merger.take_due(self.now_ms)

    @property
    def total(self) -> int:
        return sum(one.times for one in self.written)


def test_the_first_is_written_at_once_and_the_rest_together() -> None:
    flood = Flood()
    for _ in range(1_000_000 // 1_000):
        flood.add(a_denial("alice", "orders"))
    assert [one.times for one in flood.written] == [1]
    flood.wait(INTERVAL_MS - 1)
    assert len(flood.written) == 1
    flood.wait(1)
    assert [one.times for one in flood.written] == [1, 999]
    assert flood.merger.due_ms is None
    flood.add(a_denial("alice", "orders"))
    assert flood.total == 1_001


def test_one_source_does_not_use_up_the_room_of_others() -> None:
    flood = Flood()
    for number in range(1_000):
        flood.add(a_denial("mallory", f"topic-{number}"))
    flood.add(a_denial("alice", "orders"))
    assert flood.written[-1].event.who.principal == "User:alice"
    assert len(flood.written) == LIMITS.events_per_source_max + 1
    flood.wait(INTERVAL_MS)
    last = flood.written[-1]
    assert (last.event.operation, last.times) == (OTHERS, 990)
    assert last.event.who.principal == "User:mallory"


def test_user_names_that_a_client_makes_up_count_for_its_address() -> None:
    flood = Flood()
    for number in range(500):
        flood.add(a_failure(f"user-{number}", "10.0.0.9"))
    assert len(flood.written) == LIMITS.events_per_source_max
    flood.add(a_failure("bob", "10.0.0.8"))
    assert len(flood.written) == LIMITS.events_per_source_max + 1


@pytest.mark.parametrize("seed", range(20))
def test_counts_add_up_and_writes_are_bounded(seed: int) -> None:
    random_ = random.Random(seed)
    flood = Flood()
    happened: Counter[Outcome] = Counter()
    users, topics = random_.choice([1, 5, 100]), random_.choice([1, 20, 1_000])
    intervals = 5
    for _ in range(intervals):
        for _ in range(random_.randrange(2_000)):
            user, host = f"u{random_.randrange(users)}", f"h{random_.randrange(users)}"
            event = a_failure(user, host)
            if random_.random() < 0.5:
                event = a_denial(user, f"t{random_.randrange(topics)}")
            flood.add(event)
            happened[event.outcome] += 1
            assert len(flood.merger._known) <= LIMITS.events_max
            assert len(flood.merger._beyond) <= LIMITS.sources_max + 1
        before = len(flood.written)
        flood.wait(INTERVAL_MS)
        assert len(flood.written) - before <= LIMITS.events_max + LIMITS.sources_max + 1
    assert flood.total == sum(happened.values())
    most = 2 * LIMITS.events_max + LIMITS.sources_max + 1
    assert len(flood.written) <= intervals * most
    for one in flood.written:
        assert one.first_ms <= one.last_ms


def test_changes_that_succeed_are_not_merged() -> None:
    session = Session("kafka", "User:alice")
    flood = Flood()
    for serial in range(5):
        flood.add(events.changed(session, "topics.delete", Action.DELETE, [], None, serial + 1))
        flood.add(
            events.changed(session, "topics.delete", Action.DELETE, [], ValueError(), serial + 1)
        )
    assert len(flood.written) == 6
