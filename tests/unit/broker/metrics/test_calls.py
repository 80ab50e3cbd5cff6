"""Authentication, denials, waits and the audit log, as counters."""

from __future__ import annotations

from goqueue.broker.metrics.calls import CallCounter
from goqueue.metrics import Registry
from goqueue.metrics import catalogue as metrics
from goqueue.model.access import CLUSTER, Action
from goqueue.model.errors import AuthenticationFailed
from goqueue.model.observer import overrides
from goqueue.model.session import Session
from tests.simulation.scraping import scrape
from tests.simulation.world import World

SESSION = Session("outside")


def test_attempts_are_counted_by_listener_mechanism_and_outcome() -> None:
    registry = Registry()
    counter = CallCounter(registry)
    for error in (None, None, AuthenticationFailed()):
        counter.authenticated(SESSION, "ann", mechanism="PLAIN", error=error)
    counter.authenticated(SESSION, "", mechanism="", error=AuthenticationFailed())
    values = {
        labels: one.value
        for labels, one in registry.counters(metrics.SECURITY_AUTHENTICATIONS).children.items()
    }
    assert values == {
        ("outside", "PLAIN", "accepted"): 2,
        ("outside", "PLAIN", "refused"): 1,
        ("outside", "none", "refused"): 1,
    }


def test_denials_and_waits_are_counted() -> None:
    registry = Registry()
    counter = CallCounter(registry)
    counter.denied(SESSION, Action.READ, CLUSTER, operation="topics.create")
    counter.throttled(SESSION, "producer_byte_rate", 250)
    counter.throttled(SESSION, "producer_byte_rate", 1_000)
    assert registry.counter(metrics.SECURITY_DENIALS, "outside").value == 1
    assert registry.counter(metrics.QUOTA_THROTTLED, "producer_byte_rate").value == 2
    assert registry.counter(metrics.QUOTA_THROTTLE, "producer_byte_rate").value == 1.25


def test_it_costs_calls_that_succeed_nothing() -> None:
    counter = CallCounter(Registry())
    assert not overrides(counter, ("called", "queried", "opened", "created", "stored"))
    assert World().broker.gate._dispatcher.observer is None


def test_a_node_with_an_audit_log_tells_how_it_is_written() -> None:
    world = World(security__audit="on")
    world.create("orders", 1)
    world.run_for(30_000)
    found = scrape(world.broker, world.wait)
    assert found["audit_events_total"][()] >= 1
    assert found["audit_lost_total"][()] == 0
    assert found["audit_waiting_events"][()] == 0
