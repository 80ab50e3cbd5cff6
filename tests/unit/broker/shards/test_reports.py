"""Reports of what is committed: in the order of the log, each once, also after failed waits."""

from __future__ import annotations

from functools import partial

import pytest

from goqueue.broker.shards.reports import RETRY_MS, Reports
from goqueue.model.errors import NotEnoughReplicas
from tests.simulation.clock import VirtualClock
from tests.unit.partition.simulated_partition import SimulatedPartition

SHORTAGE = NotEnoughReplicas("Too few replicas are in sync; retry.")


class Reported:
    """A partition, and what was reported of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.there = SimulatedPartition()
        self.reports = Reports(self.clock, self.there.partition)
        self.names: list[str] = []

    def write(self, name: str) -> None:
        self.there.append(name)
        self.reports.add(partial(self.names.append, name))

    def lack_replicas(self, shortage: NotEnoughReplicas | None) -> None:
        self.there.partition.replica.set_shortage(shortage)


@pytest.fixture
def reported() -> Reported:
    return Reported()


def test_nothing_is_reported_before_it_is_committed(reported: Reported) -> None:
    reported.write("one")
    reported.write("two")
    assert reported.names == []
    reported.there.sync()
    assert reported.names == ["one", "two"]
    assert not reported.clock.has_timers()


def test_what_is_committed_after_its_wait_has_failed_is_reported_in_order(
    reported: Reported,
) -> None:
    reported.write("one")
    reported.lack_replicas(SHORTAGE)
    reported.lack_replicas(None)
    reported.write("two")
    assert reported.names == []
    reported.there.sync()
    assert reported.names == ["one", "two"]


def test_it_is_reported_without_a_later_write(reported: Reported) -> None:
    reported.write("one")
    reported.lack_replicas(SHORTAGE)
    reported.there.sync()
    assert reported.names == []
    reported.clock.run_for(RETRY_MS)
    assert reported.names == ["one"]
    assert not reported.clock.has_timers()


def test_a_node_that_no_longer_leads_reports_nothing(reported: Reported) -> None:
    reported.write("one")
    reported.lack_replicas(SHORTAGE)
    reported.write("two")
    reported.reports.close()
    reported.lack_replicas(None)
    reported.there.sync()
    reported.clock.run_for(2 * RETRY_MS)
    assert reported.names == []
