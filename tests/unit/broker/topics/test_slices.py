"""A topic of very many partitions is opened a slice at a time, so that other clients are served."""

from __future__ import annotations

import pytest

from goqueue.broker.topics.partition_files import OPENED_PER_TURN_MAX, PartitionFiles
from goqueue.model.errors import (
    InvalidPartitionCount,
    InvalidTopicName,
    LimitReached,
    TopicExists,
    UnknownTopic,
)
from tests.unit.broker.node import Node

MANY = 3 * OPENED_PER_TURN_MAX + 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the partitions that were opened."""
    numbers: list[int] = []
    open_one = PartitionFiles.open

    def count(self: PartitionFiles, fact: object, settings: object, number: int) -> object:
        numbers.append(number)
        return open_one(self, fact, settings, number)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionFiles, "open", count)
    return numbers


def opened_most(node: Node, opened: list[int], *, before: int = 0) -> int:
    """How many partitions one turn has opened, at most, until all are open."""
    most = 0

    def look() -> bool:
        nonlocal most, before
        most, before = max(most, len(opened) - before), len(opened)
        return len(opened) >= MANY

    node.run_until(look)
    return most


def test_one_turn_opens_a_bounded_number_of_partitions(opened: list[int]) -> None:
    node = Node()
    made = node.broker.topics.create("wide", partition_count=MANY)
    assert opened_most(node, opened) == OPENED_PER_TURN_MAX
    topic = node.wait(made)
    assert opened == list(range(MANY))
    assert [one.name.partition for one in topic.partitions] == list(range(MANY))
    node.produce("wide", ["works"], partition=MANY - 1)
    node.restart_after_crash()
    assert node.values("wide", partition=MANY - 1) == [b"works"]


def test_partitions_that_are_added_are_opened_in_slices(opened: list[int]) -> None:
    node = Node()
    node.create("wide", 1)
    node.produce("wide", ["old"])
    grown = node.broker.topics.grow("wide", MANY)
    assert opened_most(node, opened, before=1) == OPENED_PER_TURN_MAX
    node.wait(grown)
    assert opened == list(range(MANY))
    assert node.values("wide") == [b"old"]
    node.produce("wide", ["new"], partition=MANY - 1)
    assert node.values("wide", partition=MANY - 1) == [b"new"]


def test_a_topic_appears_when_all_its_partitions_are_open() -> None:
    node = Node()
    topics = node.broker.topics
    made = topics.create("wide.one", partition_count=MANY)
    assert topics.find("wide.one") is None
    with pytest.raises(TopicExists):
        topics.create("wide.one", partition_count=1)
    with pytest.raises(InvalidTopicName, match=r"mistaken for 'wide\.one'"):
        topics.create("wide_one", partition_count=1)
    assert node.wait(made) is topics.get("wide.one")


def test_topics_that_are_being_made_count() -> None:
    node = Node(topics__partitions_total_max=str(MANY + 1), topics__topics_max="2")
    topics = node.broker.topics
    made = topics.create("wide", partition_count=MANY)
    with pytest.raises(LimitReached, match="partitions_total_max"):
        topics.create("other", partition_count=2)
    topics.create("other", partition_count=1)
    with pytest.raises(LimitReached, match="topics_max"):
        topics.create("third", partition_count=1)
    node.wait(made)
    assert len(topics) == 2


def test_a_topic_may_be_deleted_while_partitions_are_added() -> None:
    node = Node()
    node.create("wide", 1)
    grown = node.broker.topics.grow("wide", MANY)
    node.wait(node.broker.topics.delete("wide"))
    with pytest.raises(UnknownTopic):
        node.wait(grown)
    node.create("wide", 2)
    assert len(node.broker.topics.get("wide").partitions) == 2


def test_the_larger_of_two_additions_at_once_is_what_stays() -> None:
    node = Node()
    node.create("wide", 1)
    topics = node.broker.topics
    smaller = topics.grow("wide", MANY - OPENED_PER_TURN_MAX)
    larger = topics.grow("wide", MANY)
    node.wait(smaller)
    node.wait(larger)
    larger, smaller = topics.grow("wide", MANY + MANY), topics.grow("wide", MANY + 1)
    node.wait(smaller)
    node.wait(larger)
    assert len(topics.get("wide").partitions) == 2 * MANY
    with pytest.raises(InvalidPartitionCount):
        topics.grow("wide", MANY)


def test_settings_that_change_while_partitions_are_opened_hold_for_them() -> None:
    node = Node()
    node.create("wide", 1)
    topics = node.broker.topics
    grown = topics.grow("wide", MANY)
    node.wait(topics.configure("wide", {"max_message_bytes": "12345"}))
    node.wait(grown)
    topic = topics.get("wide")
    assert topic.fact.settings == {"max_message_bytes": "12345"}
    assert {one.settings.message_bytes_max for one in topic.partitions} == {12345}


def test_a_node_that_stops_while_a_topic_is_made_has_none_of_it() -> None:
    node = Node()
    node.broker.topics.create("wide", partition_count=MANY)
    node.stop()
    node.start()
    assert node.broker.topics.find("wide") is None
    node.create("wide", 1)
