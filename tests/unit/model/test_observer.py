"""Several observers as one, and who gets an observer at all."""

from __future__ import annotations

from goqueue.model.observer import (
    CALL_EVENTS,
    MESSAGE_EVENTS,
    NODE_EVENTS,
    QUOTA_EVENTS,
    Observer,
    Observers,
    interested,
    overrides,
    together,
)


class OfNodes(Observer):
    observes_traffic = False

    def __init__(self) -> None:
        self.seen: list[int] = []

    def started(self, node: int) -> None:
        self.seen.append(node)


class OfStops(OfNodes):
    observes_traffic = True

    def stopping(self, node: int) -> None:
        self.seen.append(-node)


def test_every_event_is_listed_once() -> None:
    events = [name for name in vars(Observer) if callable(getattr(Observer, name))]
    assert sorted(events) == sorted((*MESSAGE_EVENTS, *CALL_EVENTS, *QUOTA_EVENTS, *NODE_EVENTS))


def test_none_and_one_are_themselves() -> None:
    assert together([]) is None
    assert together([None, None]) is None
    one = OfNodes()
    assert together([None, one]) is one


def test_each_observer_gets_the_events_that_it_overrides() -> None:
    starts, stops = OfNodes(), OfStops()
    both = together([starts, stops])
    assert isinstance(both, Observers)
    both.started(3)
    both.stopping(3)
    assert (starts.seen, stops.seen) == ([3], [3, -3])


def test_an_event_without_an_observer_costs_nothing() -> None:
    both = Observers([OfNodes(), OfNodes()])
    assert not overrides(both, MESSAGE_EVENTS)
    assert interested(both, MESSAGE_EVENTS) is None
    assert interested(both, NODE_EVENTS) is both
    assert interested(Observer(), NODE_EVENTS) is None
    assert interested(None, NODE_EVENTS) is None


def test_traffic_is_observed_if_one_of_them_does() -> None:
    assert not Observers([OfNodes(), OfNodes()]).observes_traffic
    assert Observers([OfNodes(), OfStops()]).observes_traffic
