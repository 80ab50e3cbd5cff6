"""How many topics and partitions there may be, and that one more costs no more than the first."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidTopicName, LimitReached
from tests.unit.broker.node import Node
from tests.unit.effort import steps_of


def test_one_topic_too_many_is_refused() -> None:
    node = Node(topics__topics_max="3")
    for number in range(3):
        node.create(f"t{number}")
    with pytest.raises(LimitReached, match="topics_max"):
        node.create("t3")
    node.wait(node.broker.topics.delete("t0"))
    node.create("t3")


def test_one_partition_too_many_is_refused() -> None:
    node = Node(topics__partitions_total_max="10")
    node.create("a", 6)
    with pytest.raises(LimitReached, match="partitions_total_max"):
        node.create("b", 5)
    node.create("b", 4)
    with pytest.raises(LimitReached):
        node.broker.topics.grow("a", 7)
    node.wait(node.broker.topics.delete("b"))
    node.wait(node.broker.topics.grow("a", 10))
    node.stop()
    node.start()
    with pytest.raises(LimitReached):
        node.create("c", 1)


def test_a_new_topic_costs_the_same_however_many_there_are() -> None:
    node = Node()

    def cost() -> int:
        topics = node.broker.topics
        return steps_of(lambda: topics.check_new("probe", partition_count=1, settings={}))[1]

    node.create("first")
    before = cost()
    for number in range(200):
        node.create(f"t-{number}")
    assert cost() == before


def test_names_that_metrics_mistake_for_one_another_are_refused() -> None:
    node = Node()
    node.create("a.b")
    with pytest.raises(InvalidTopicName, match=r"mistaken for 'a\.b'"):
        node.create("a_b")
    node.wait(node.broker.topics.delete("a.b"))
    node.create("a_b")
