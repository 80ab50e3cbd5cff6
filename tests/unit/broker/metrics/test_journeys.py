"""What a node says of the journeys that it records."""

from __future__ import annotations

import pytest

from goqueue.broker.journeys.pieces import Results
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotCoordinator
from goqueue.model.names import JOURNEYS_TOPIC
from tests.simulation.scraping import scrape
from tests.unit.broker.journeys.test_recording import JourneyNode


@pytest.fixture
def node() -> JourneyNode:
    node = JourneyNode()
    node.create("orders", 1)
    return node


def measured(node: JourneyNode) -> dict[str, float]:
    found = scrape(node.broker, node.wait)
    return {name: value for name, [value] in _plain(found).items()}


def _plain(found: dict[str, dict[tuple[str, ...], float]]) -> dict[str, list[float]]:
    return {
        name.removeprefix("journey_").removesuffix("_total"): list(values.values())
        for name, values in found.items()
        if name.startswith("journey_")
    }


def test_an_idle_node_says_that_there_is_nothing(node: JourneyNode) -> None:
    assert measured(node) == {"events": 0, "written_bytes": 0, "lag_seconds": 0, "recovered": 0}


def test_every_event_and_byte_that_is_written_is_counted(node: JourneyNode) -> None:
    node.send("a", "b", "c")
    node.settle("ack", node.receive())
    journal = node.journal()
    found = measured(node)
    assert found["events"] == len(journal) > 0
    logs = [one.log for one in node.broker.topics.get(JOURNEYS_TOPIC).partitions]
    assert found["written_bytes"] == sum(one.size for one in logs) > 0
    assert (found["recovered"], found["lag_seconds"]) == (0, 0)


def test_events_that_are_derived_from_logs_are_counted(node: JourneyNode) -> None:
    node.send("a", "b", "c")
    node.kill()
    node.start()
    journal = node.journal()
    assert measured(node)["recovered"] == sum(one[-1].details.is_recovered for one in journal) > 0


def test_the_lag_is_the_age_of_what_waits(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node.broker.journeys is not None
    owners = node.broker.journeys.owners

    def refuse(number: int, pieces: object) -> Promise[Results]:
        refused: Promise[Results] = Promise()
        refused.reject(NotCoordinator("The owner is away."))
        return refused

    with monkeypatch.context() as away:
        away.setattr(owners, "write", refuse)
        node.send("a")
        node.run_for(10_000)
        assert measured(node)["lag_seconds"] == pytest.approx(9.5, abs=0.5)
        node.send("b")
        node.run_for(5_000)
        assert measured(node)["lag_seconds"] == pytest.approx(14.5, abs=0.5)
    node.run_for(1_000)
    assert measured(node)["lag_seconds"] == 0
    assert measured(node)["events"] == len(node.journal()) > 0
