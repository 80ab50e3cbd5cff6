"""Listeners get their instruments, and scrapes what only the process knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from goqueue.metrics import Samples
from goqueue.metrics import catalogue as metrics
from goqueue.model.session import ListenerRules
from goqueue.runtime.measuring.node import NodeMeasuring
from tests.simulation.world import World


def listener(name: str, connections: int) -> Any:
    return SimpleNamespace(rules=ListenerRules(name), connections=set(range(connections)))


def test_connections_and_expiry_are_read_by_listener() -> None:
    world = World()
    listeners = [listener("outside", 3), listener("internal", 2)]
    loop: Any = None
    NodeMeasuring(loop, world.broker, listeners, {"outside": lambda: 1_800_000_000_500})
    samples = Samples(series_max=1_000)
    for _ in world.broker.metrics.run_collectors(samples):
        pass
    found = samples.by_metric
    assert found[metrics.LISTENER_CONNECTIONS] == {("outside",): 3, ("internal",): 2}
    assert found[metrics.CERTIFICATE_EXPIRY] == {("outside",): pytest.approx(1_800_000_000.5)}


def test_what_others_count_is_read_at_each_scrape() -> None:
    world, open_streams = World(), [1, 2]
    loop: Any = None
    NodeMeasuring(loop, world.broker, [], {}, {metrics.LISTENER_STREAMS: lambda: len(open_streams)})
    for count in (2, 1):
        samples = Samples(series_max=1_000)
        for _ in world.broker.metrics.run_collectors(samples):
            pass
        assert samples.by_metric[metrics.LISTENER_STREAMS] == {(): count}
        open_streams.pop()


def test_what_a_listener_counts_is_that_of_the_node() -> None:
    world = World()
    one = listener("outside", 0)
    loop: Any = None
    NodeMeasuring(loop, world.broker, [one], {})
    one.measured.received.value += 10
    one.measured.refused("quota")
    registry = world.broker.metrics
    assert registry.counter(metrics.LISTENER_RECEIVED_BYTES, "outside").value == 10
    assert registry.counter(metrics.LISTENER_CONNECTIONS_REFUSED, "outside", "quota").value == 1


def test_rounds_of_syncs_are_measured() -> None:
    world = World()
    loop: Any = None
    NodeMeasuring(loop, world.broker, [], {})
    world.create("orders", 1)
    world.produce("orders", ["a"])
    world.run_for(5)
    durations = world.broker.metrics.histogram(metrics.STORAGE_SYNC_DURATION)
    assert durations.count > 0


def test_nothing_is_measured_where_metrics_are_switched_off() -> None:
    world = World(metrics__enabled="false")
    loop: Any = None
    measuring = NodeMeasuring(loop, world.broker, [], {})
    measuring.start()
    world.create("orders", 1)
    world.produce("orders", ["a"])
    world.run_for(5)
    measuring.stop()
    durations = world.broker.metrics.histogram(metrics.STORAGE_SYNC_DURATION)
    assert durations.count == 0
