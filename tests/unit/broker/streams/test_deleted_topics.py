"""Offsets of a deleted topic are not those of a later topic of its name."""

from __future__ import annotations

import contextlib

import pytest

from goqueue.broker.streams import coordinators
from tests.simulation.clock import NeverHappened
from tests.simulation.scraping import SESSION, scrape
from tests.unit.broker.node import Node

GROUP = "billing"


def node_with_an_offset(seed: int = 0, **settings: str) -> Node:
    node = Node(seed=seed, **settings)
    node.create("orders")
    node.host_groups()
    assert node.commit(GROUP, 7) is None
    node.run_for(10_000)
    assert node.committed(GROUP) == 7
    return node


def delete(node: Node) -> None:
    node.wait(node.broker.gate.topics.delete(SESSION, topic="orders"))


def run_steps(node: Node, count: int) -> None:
    until = node.clock.steps + count
    with contextlib.suppress(NeverHappened):
        node.clock.run_until(lambda: node.clock.steps >= until, ms_max=100)


@pytest.mark.parametrize("fsync", ["every", "interval"])
def test_a_crash_after_the_deletion_does_not_bring_them_back(fsync: str) -> None:
    deleted = 0
    for steps in range(1, 30):
        node = node_with_an_offset(steps, storage__fsync=fsync)
        node.broker.gate.topics.delete(SESSION, topic="orders")
        run_steps(node, steps)
        node.restart_after_crash()
        if node.broker.topics.find("orders") is None:
            deleted += 1
            node.create("orders")
            assert node.committed(GROUP) is None, f"{steps} steps"
    assert deleted > 5


def test_a_topic_that_was_created_again_has_no_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    # With many topics, coordinators learn of both changes together.
    monkeypatch.setattr(coordinators, "TOPICS_PER_MS", 0.01)
    node = node_with_an_offset()
    delete(node)
    node.create("orders")
    assert node.committed(GROUP) is None
    assert node.commit(GROUP, 2) is None
    assert node.committed(GROUP) == 2
    node.run_for(10_000)
    assert node.committed(GROUP) == 2
    node.restart_after_crash()
    assert node.committed(GROUP) == 2


def test_what_is_read_of_the_new_topic_is_counted_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinators, "TOPICS_PER_MS", 0.01)
    node = node_with_an_offset()
    delete(node)
    node.create("orders")
    node.produce("orders", ["a"] * 10)
    assert "group_lag_messages" not in scrape(node.broker, node.wait)
    node.commit(GROUP, 2)
    node.run_for(2_000)
    found = scrape(node.broker, node.wait)
    assert found["group_lag_messages"] == {(GROUP, "orders"): 8}
    assert found["group_committed_messages_total"] == {(GROUP, "orders"): 7 + 2}
