"""Queues by name: made of a topic and a group, changed, shared and deleted, and sent to."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.broker.named_queues.named_queues import NamedQueue, NamedQueueSpec, Posted, Posting
from goqueue.broker.queues.records import ReceivedMessage
from goqueue.cluster.facts import NamedQueueFact
from goqueue.model.attributes import MESSAGE_ID_HEADER, header_text
from goqueue.model.batch import Record
from goqueue.model.errors import (
    GroupKindMismatch,
    InternalTopic,
    InvalidGroupSettings,
    InvalidPartitionCount,
    InvalidTopicName,
    InvalidTopicSetting,
    QueueExists,
    UnknownQueue,
    UnknownTopic,
)
from tests.unit.broker.node import Node


class NamedNode(Node):
    """A node and the clients of its named queues."""

    def make(self, name: str = "orders", **options: Any) -> NamedQueue:
        return self.wait(self.broker.named_queues.create(NamedQueueSpec(name, **options)))

    def change(self, name: str = "orders", **options: Any) -> NamedQueue:
        return self.wait(self.broker.named_queues.change(name, **options))

    def delete(self, name: str = "orders") -> None:
        self.wait(self.broker.named_queues.delete(name))

    def post(self, *values: str, name: str = "orders", **options: Any) -> list[Any]:
        queue = self.broker.named_queues.get(name)
        postings = [Posting(Record(None, one.encode()), f"id-{one}", **options) for one in values]
        return self.wait(self.broker.named_queues.send(queue, postings))

    def receive(self, name: str = "orders", **options: Any) -> list[ReceivedMessage]:
        queue = self.broker.named_queues.get(name)
        receiver = self.broker.queues.receive(queue.group, queue.topic, consumer="anna", **options)
        received = self.wait(receiver.promise)
        return list(received)

    def texts(self, name: str = "orders", **options: Any) -> list[str]:
        return [(one.record.value or b"").decode() for one in self.receive(name, **options)]

    def topics(self) -> list[str]:
        return sorted(one.name for one in self.broker.topics if not one.is_internal)

    def groups(self) -> list[str]:
        return sorted(one.name for one in self.broker.queues.groups.all())


@pytest.fixture
def node() -> NamedNode:
    return NamedNode(topics__partitions="1")


# Making


def test_a_queue_is_a_topic_and_a_group_of_its_name(node: NamedNode) -> None:
    made = node.make(attributes={"Delay": "0"}, tags={"team": "shop"})
    assert (made.name, made.topic, made.group) == ("orders", "orders", "orders")
    assert (made.attributes, made.tags) == ({"Delay": "0"}, {"team": "shop"})
    assert made.made_topic
    assert (node.topics(), node.groups()) == (["orders"], ["orders"])
    assert node.post("a", "b") == [Posted("id-a", 0), Posted("id-b", 1)]
    assert node.texts() == ["a", "b"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_queues_are_there_after_a_restart(node: NamedNode, is_clean: bool) -> None:
    node.make("b", queue_settings={"visibility_ms": 5000})
    node.make("a")
    before = node.broker.named_queues.all()
    if is_clean:
        node.stop()
        node.start()
    else:
        node.restart_after_crash()
    assert node.broker.named_queues.all() == before
    assert [one.name for one in before] == ["a", "b"]
    assert node.broker.queues.groups.describe("b").settings.visibility_ms == 5000


def test_a_queue_that_exists_with_the_attributes_that_are_named_is_taken(node: NamedNode) -> None:
    made = node.make(attributes={"Delay": "0", "Size": "9"})
    assert node.make(attributes={"Delay": "0"}) == made
    assert node.make() == made
    for other in ({"Delay": "1"}, {"Colour": "red"}):
        with pytest.raises(QueueExists, match="orders"):
            node.make(attributes=other)
    with pytest.raises(QueueExists):
        node.make(is_ordered=True)
    assert node.broker.named_queues.all() == [made]


def test_what_an_interrupted_call_left_undone_is_done_by_the_next(node: NamedNode) -> None:
    fact = NamedQueueFact(b"i" * 16, "orders", "orders", "orders", 5, 5, made_topic=True)
    node.wait(node.broker.topics.facts.record_named_queue(fact))
    node.restart_after_crash()
    assert (node.topics(), node.groups()) == ([], [])
    assert node.make(queue_settings={"visibility_ms": 7000}) == fact
    assert (node.topics(), node.groups()) == (["orders"], ["orders"])
    assert node.broker.queues.groups.describe("orders").settings.visibility_ms == 7000


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": "no spaces"}, InvalidTopicName),
        ({"name": "orders", "topic": "nowhere"}, UnknownTopic),
        ({"name": "orders", "topic": "__delivery"}, InternalTopic),
        ({"name": "orders", "queue_settings": {"visibility_ms": 0}}, InvalidGroupSettings),
        ({"name": "orders", "topic_settings": {"colour": "red"}}, InvalidTopicSetting),
    ],
)
def test_what_cannot_be_made_leaves_nothing_behind(
    node: NamedNode, options: dict[str, Any], error: type[Exception]
) -> None:
    node.make("other")
    node.receive("other")
    with pytest.raises(error):
        node.make(**options)
    node.delete("other")
    assert (node.broker.named_queues.all(), node.topics(), node.groups()) == ([], [], [])


def test_a_stream_group_of_that_name_is_not_touched(node: NamedNode) -> None:
    node.create("orders")
    node.host_groups()
    node.commit("orders", 0)
    made = node.make("orders")
    assert (made.name, made.group, made.made_topic) == ("orders", "orders.queue", False)
    node.post("a")
    assert node.texts() == ["a"]
    assert node.committed("orders") == 0
    node.delete()
    assert (node.groups(), node.committed("orders")) == ([], 0)


def test_a_stream_group_cannot_take_the_name_of_a_queue(node: NamedNode) -> None:
    node.host_groups()
    node.make("orders")
    assert isinstance(node.commit("orders", 0), GroupKindMismatch)


def test_a_name_that_only_stream_groups_have_left_is_refused(node: NamedNode) -> None:
    node.create("orders")
    node.host_groups()
    for group in ("orders", "orders.queue"):
        node.commit(group, 0)
    with pytest.raises(GroupKindMismatch, match="stream group"):
        node.make("orders")
    assert node.broker.named_queues.all() == []


def test_a_name_that_differs_by_a_dot_from_that_of_dead_letters_can_be_had(
    node: NamedNode,
) -> None:
    """Without a limit of deliveries there are none, and nobody waits for their topic."""
    node.make("orders_dlq", queue_settings={"deliveries_max": 0})
    node.make("orders", queue_settings={"deliveries_max": 0})
    node.post("a")
    assert node.texts() == ["a"]


# Topics that others have, too


def test_a_queue_on_a_topic_that_was_there_leaves_it_alone(node: NamedNode) -> None:
    node.create("orders", retention_ms="60000")
    node.produce("orders", ["before"])
    made = node.make(topic_settings={"retention_ms": "5"})
    assert not made.made_topic
    assert node.texts() == ["before"]
    node.change(topic_settings={"retention_ms": "7"})
    assert node.broker.topics.get("orders").fact.settings == {"retention_ms": "60000"}
    node.delete()
    assert (node.topics(), node.groups()) == (["orders"], [])


def test_several_queues_share_a_topic_and_the_last_takes_it_along(node: NamedNode) -> None:
    node.make("orders")
    second = node.make("copies", topic="orders")
    assert (second.topic, second.group, second.made_topic) == ("orders", "copies", False)
    node.post("a", name="copies")
    assert node.texts("orders") == node.texts("copies") == ["a"]
    node.delete("orders")
    assert (node.topics(), node.groups()) == (["orders"], ["copies"])
    assert node.texts("copies") == []


# Changing


def test_changes_leave_what_they_do_not_name(node: NamedNode) -> None:
    node.make(attributes={"a": "1", "b": "2"}, tags={"x": "1"})
    node.run_for(5000)
    tagged = node.change(tags={"y": "2"})
    assert (tagged.tags, tagged.modified_ms) == ({"x": "1", "y": "2"}, tagged.created_ms)
    changed = node.change(
        attributes={"a": None, "b": "3"},
        tags={"x": None},
        queue_settings={"visibility_ms": 9000},
        topic_settings={"retention_ms": "70000"},
    )
    assert (changed.attributes, changed.tags) == ({"b": "3"}, {"y": "2"})
    assert changed.modified_ms > changed.created_ms
    assert node.broker.queues.groups.describe("orders").settings.visibility_ms == 9000
    assert node.broker.topics.get("orders").fact.settings == {"retention_ms": "70000"}
    node.restart_after_crash()
    assert node.broker.named_queues.get("orders") == changed


def test_what_is_not_there_is_named(node: NamedNode) -> None:
    named = node.broker.named_queues
    assert named.find("orders") is None
    assert node.wait(named.find_surely("orders")) is None
    with pytest.raises(UnknownQueue, match="'orders'"):
        named.get("orders")
    with pytest.raises(UnknownQueue):
        node.change(tags={"a": "b"})
    with pytest.raises(UnknownQueue):
        node.delete()


def test_a_queue_is_deleted_with_all_it_had(node: NamedNode) -> None:
    before = node.make()
    node.post("a")
    assert node.texts() == ["a"]
    node.delete()
    assert (node.broker.named_queues.all(), node.topics(), node.groups()) == ([], [], [])
    after = node.make()
    assert after.id != before.id
    assert node.texts() == []
    node.restart_after_crash()
    assert node.broker.named_queues.all() == [after]


def test_a_deletion_that_was_interrupted_can_be_repeated(node: NamedNode) -> None:
    node.make()
    node.wait(node.broker.topics.delete("orders"))
    node.wait(node.broker.queues.groups.delete("orders"))
    node.delete()
    assert node.broker.named_queues.all() == []


# Sending


def test_ids_of_messages_are_headers(node: NamedNode) -> None:
    node.make()
    node.post("a")
    [one] = node.receive()
    assert header_text(one.record.headers, MESSAGE_ID_HEADER) == "id-a"


def test_a_delayed_message_comes_when_it_is_due(node: NamedNode) -> None:
    node.make()
    assert node.post("later", delay_ms=5000) == [Posted("id-later", None)]
    assert node.texts() == []
    node.run_for(6000)
    assert node.texts() == ["later"]


def test_messages_that_make_no_sense_are_refused_by_themselves(node: NamedNode) -> None:
    node.make()
    queue = node.broker.named_queues.get("orders")
    bad = Record(None, b"x", (("goqueue-priority", b"purple"),))
    postings = [
        Posting(bad, "1"),
        Posting(bad, "2", delay_ms=5),
        Posting(Record(None, b"good"), "3"),
    ]
    first, second, third = node.wait(node.broker.named_queues.send(queue, postings))
    assert [getattr(one, "code", None) for one in (first, second)] == ["invalid_attribute"] * 2
    assert third == Posted("3", 0)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_queue_holds_back_what_was_stored_a_moment_ago(node: NamedNode, is_clean: bool) -> None:
    node.make(is_ordered=True, queue_settings={"key_order": True, "delay_ms": 10_000})
    node.receive()
    node.post("old")
    node.run_for(8000)
    node.post("young")
    assert node.texts() == []
    assert node.broker.queues.inspection.stats("orders", "orders").delayed == 2
    if is_clean:
        node.stop()
        node.start()
    else:
        node.restart_after_crash()
    assert node.texts(wait_ms=5000) == ["old"]
    assert node.texts() == []
    assert node.texts(wait_ms=20_000) == ["young"]
    assert node.broker.queues.inspection.stats("orders", "orders").delayed == 0


def test_a_shorter_delay_brings_what_is_old_enough_to_those_who_wait(node: NamedNode) -> None:
    node.make(queue_settings={"delay_ms": 600_000})
    node.receive()
    node.post("a")
    node.run_for(5000)
    receiver = node.broker.queues.receive("orders", "orders", consumer="a", wait_ms=50_000)
    node.run_for(1000)
    assert not receiver.promise.is_done
    node.change(queue_settings={"delay_ms": 1000})
    assert len(node.wait(receiver.promise)) == 1


def test_no_partitions_are_added_under_an_ordered_queue(node: NamedNode) -> None:
    """Keys would move, and their later messages would be received before the earlier ones."""
    node.make("ordered", is_ordered=True)
    node.make("plain")
    topics = node.broker.topics
    with pytest.raises(InvalidPartitionCount, match="keeps the messages of a key in order"):
        node.wait(topics.grow("ordered", 8))
    node.wait(topics.grow("plain", 8))
    assert topics.get("plain").partition_count == 8
