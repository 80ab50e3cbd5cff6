"""Committed offsets and removed records are in the journal, whenever the node was killed."""

from __future__ import annotations

import pytest

from goqueue.model.names import OFFSETS_TOPIC
from goqueue.tracing.events import Event, Kind
from tests.unit.broker.journeys.test_recording import JourneyNode

Parts = list[tuple[int, int]]


@pytest.fixture
def node() -> JourneyNode:
    node = JourneyNode()
    node.create("orders", 2)
    node.send(*"abcdef")
    node.run_for(2_000)
    return node


def consumed(node: JourneyNode, group: str = "readers") -> list[Event]:
    return [
        one.event
        for one in node.journal()
        if one.event.kind is Kind.CONSUMED and one.event.details.group == group
    ]


def parts(events: list[Event]) -> Parts:
    return [(one.first, one.end) for one in events]


def test_commits_are_recorded_once(node: JourneyNode) -> None:
    node.commit("readers", 2)
    node.run_for(100)  # Events that follow each other closely become one.
    node.commit("readers", 5)
    assert parts(consumed(node)) == [(0, 2), (2, 5)]
    assert not any(one.details.is_recovered for one in consumed(node))
    node.stop()
    node.start()
    node.run_for(2_000)
    node.commit("readers", 6)
    assert parts(consumed(node)) == [(0, 2), (2, 5), (5, 6)]


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
@pytest.mark.parametrize("wait_ms", [0, 500, 2_000])
def test_a_restart_loses_no_commit(node: JourneyNode, how: str, wait_ms: int) -> None:
    node.commit("readers", 1)
    node.run_for(2_000)
    node.commit("readers", 2)
    node.commit("others", 3)
    node.commit("readers", 4)
    node.run_for(wait_ms)
    getattr(node, how)()
    node.start()
    node.run_for(2_000)
    assert parts(consumed(node)) in ([(0, 1), (1, 2), (2, 4)], [(0, 1), (1, 4)])
    assert parts(consumed(node, "others")) == [(0, 3)]
    node.commit("readers", 6)
    assert parts(consumed(node))[-1] == (4, 6)


def test_commits_that_waited_for_the_journal_in_vain_are_derived(node: JourneyNode) -> None:
    assert node.broker.journeys is not None
    node.commit("readers", 1)
    node.run_for(2_000)
    [source] = [
        one
        for name, one in node.broker.journeys.recorder._of_logs.items()
        if name.topic == OFFSETS_TOPIC and one.reported
    ]
    node.commit("readers", 3)
    node.broker.journeys.recorder._derive_later(source)
    node.commit("readers", 4)
    assert parts(consumed(node)) in ([(0, 1), (1, 3), (3, 4)], [(0, 1), (1, 4)])


def test_offsets_of_an_earlier_topic_of_the_name_are_not_of_this_one(node: JourneyNode) -> None:
    node.commit("readers", 4)
    node.kill()
    node.start()
    node.broker.topics.delete("orders")
    node.run_for(10)
    node.create("orders", 2)
    node.send("a")
    node.run_for(5_000)
    topic = node.broker.topics.get("orders")
    found = [one.event for one in node.journal() if one.place.topic_id == topic.id]
    assert found
    assert not [one for one in found if one.kind is Kind.CONSUMED]


def retired(node: JourneyNode) -> list[Event]:
    return [one.event for one in node.journal() if one.event.kind is Kind.RETIRED]


def test_removed_records_are_recorded_once(node: JourneyNode) -> None:
    partition = node.broker.topics.get("orders").partition(0)
    partition.retention.delete_before(2)
    partition.retention.delete_before(3)
    assert parts(retired(node)) in ([(0, 2), (2, 3)], [(0, 3)])
    assert {one.details.reason for one in retired(node)} == {"records deleted"}
    node.stop()
    node.start()
    node.run_for(2_000)
    node.broker.topics.get("orders").partition(0).retention.delete_before(5)
    assert parts(retired(node))[-1] == (3, 5)
    assert sum(end - first for first, end in parts(retired(node))) == 5


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("wait_ms", [0, 500, 2_000])
def test_a_restart_loses_no_removal(node: JourneyNode, how: str, wait_ms: int) -> None:
    node.broker.topics.get("orders").partition(0).retention.delete_before(2)
    node.run_for(2_000)
    node.broker.topics.get("orders").partition(0).retention.delete_before(4)
    node.run_for(wait_ms)
    getattr(node, how)()
    node.start()
    node.run_for(2_000)
    assert parts(retired(node)) == [(0, 2), (2, 4)]
    node.broker.topics.get("orders").partition(0).retention.delete_before(5)
    assert parts(retired(node)) == [(0, 2), (2, 4), (4, 5)]


def test_removals_while_the_journal_is_away_are_not_lost(node: JourneyNode) -> None:
    assert node.broker.journeys is not None
    partition = node.broker.topics.get("orders").partition(0)
    partition.retention.delete_before(1)
    node.run_for(2_000)
    partition.retention.delete_before(2)
    node.broker.journeys.recorder._overflowed()
    partition.retention.delete_before(4)
    node.run_for(2_000)
    found = retired(node)
    assert sum(end - first for first, end in parts(found)) == 4
    assert parts(found)[-1][1] == 4
