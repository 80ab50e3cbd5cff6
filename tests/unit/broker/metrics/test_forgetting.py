"""Series of deleted topics leave the scrape."""

from __future__ import annotations

import pytest

from goqueue.broker.metrics import forgetting
from goqueue.broker.metrics.forgetting import INTERVAL_MS, KEPT_MS
from goqueue.metrics import catalogue as c
from goqueue.model.batch import Record
from tests.simulation.scraping import SESSION, scrape
from tests.unit.broker.node import Node


def publish(node: Node, topic: str, count: int = 1) -> None:
    records = [Record(None, b"v")] * count
    node.wait(node.broker.gate.records.publish(SESSION, topic=topic, records=records))


def topics_in(node: Node) -> set[str]:
    found = scrape(node.broker, node.wait)
    return {labels[0] for labels in found.get("producer_messages_total", ())}


def wait_until_forgotten(node: Node) -> None:
    scrape(node.broker, node.wait)  # It finds that the topics are gone.
    node.run_for(KEPT_MS + INTERVAL_MS)
    scrape(node.broker, node.wait)


def used_node(*topics: str) -> Node:
    node = Node()
    for topic in topics:
        node.create(topic)
        publish(node, topic, 3)
    return node


def delete(node: Node, topic: str) -> None:
    node.wait(node.broker.gate.topics.delete(SESSION, topic=topic))


def test_the_last_values_of_a_deleted_topic_can_be_scraped_for_a_while() -> None:
    node = used_node("old", "new")
    delete(node, "old")
    assert topics_in(node) == {"old", "new"}
    node.run_for(KEPT_MS - INTERVAL_MS)
    assert topics_in(node) == {"old", "new"}
    node.run_for(2 * INTERVAL_MS)
    assert topics_in(node) == {"new"}
    text = str(scrape(node.broker, node.wait))
    assert "old" not in text


def test_a_new_topic_of_the_name_keeps_the_series() -> None:
    node = used_node("orders")
    delete(node, "orders")
    scrape(node.broker, node.wait)
    node.create("orders")
    node.run_for(KEPT_MS + INTERVAL_MS)
    publish(node, "orders")
    assert scrape(node.broker, node.wait)["producer_messages_total"] == {("orders",): 4}


def test_a_topic_of_a_name_that_was_forgotten_is_counted_from_zero() -> None:
    node = used_node("orders", "other")
    delete(node, "orders")
    wait_until_forgotten(node)
    node.create("orders")
    publish(node, "orders", 2)
    publish(node, "other")
    found = scrape(node.broker, node.wait)["producer_messages_total"]
    assert found == {("orders",): 2, ("other",): 4}


def test_a_sweep_removes_a_bounded_number_and_the_next_ones_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgetting, "SERIES_PER_SWEEP_MAX", 5)
    names = [f"t{number}" for number in range(8)]
    node = used_node(*names)
    for name in names:
        delete(node, name)

    def series() -> int:
        scrape(node.broker, node.wait)
        return sum(one.labels[0] in names for one in node.broker.metrics.labelled("topic"))

    before = series()
    assert before > 20
    node.run_for(KEPT_MS)
    for left in range(before - 5, 0, -5):
        node.run_for(INTERVAL_MS)
        assert series() == left
    node.run_for(INTERVAL_MS)
    assert series() == 0


def test_series_of_too_many_topics_together_stay() -> None:
    node = used_node()
    node.broker.metrics.counter(c.PRODUCER_MESSAGES, "(other)").value += 1
    wait_until_forgotten(node)
    assert topics_in(node) == {"(other)"}
