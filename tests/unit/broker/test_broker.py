"""The node as its front ends see it."""

from __future__ import annotations

import pytest

from goqueue.broker.topics.topics import Topic
from goqueue.loop.promise import Promise, start
from goqueue.model.errors import InvalidTopicName, OffsetOutOfRange, UnknownPartition, UnknownTopic
from tests.unit.broker.node import Node


def auto_create(node: Node, name: str, *, may_create: bool = True) -> Topic:
    promise: Promise[Topic] = Promise()
    start(node.broker.auto_creation.create(name, may_create=may_create), promise.settle)
    return node.wait(promise)


def test_a_new_folder_founds_a_cluster_and_stays_in_it() -> None:
    node = Node()
    cluster_id = node.broker.cluster_id
    assert len(cluster_id) == 22
    node.restart_after_crash()
    assert node.broker.cluster_id == cluster_id


def test_a_cluster_may_be_named_by_its_settings() -> None:
    assert Node(node__cluster_id="ours").broker.cluster_id == "ours"


def test_a_topic_that_is_asked_for_comes_into_being_if_it_may() -> None:
    node = Node(topics__auto_create="true", topics__partitions="3")
    topic = auto_create(node, "orders")
    assert topic is node.broker.topics.get("orders")
    assert len(node.broker.topics.get("orders").partitions) == 3


def test_a_topic_does_not_come_into_being_where_node_or_client_do_not_want_it() -> None:
    with pytest.raises(UnknownTopic):
        auto_create(Node(topics__auto_create="false"), "orders")
    with pytest.raises(UnknownTopic):
        auto_create(Node(topics__auto_create="true"), "orders", may_create=False)
    with pytest.raises(UnknownTopic):
        auto_create(Node(topics__auto_create="true"), "__consumer_offsets")


def test_a_bad_name_is_refused_as_such_whether_or_not_it_may_be_made() -> None:
    for may_create in (True, False):
        with pytest.raises(InvalidTopicName):
            auto_create(Node(), "no good", may_create=may_create)


def test_records_are_deleted_up_to_an_offset() -> None:
    node = Node()
    node.create("orders")
    node.produce("orders", ["a", "b", "c"])
    deleted = node.broker.administration.delete_records("orders", 0, before_offset=2)
    assert node.wait(deleted) == 2
    assert node.values("orders") == [b"c"]
    with pytest.raises(OffsetOutOfRange):
        node.broker.administration.delete_records("orders", 0, before_offset=9)
    with pytest.raises(UnknownPartition):
        node.broker.administration.delete_records("orders", 1, before_offset=0)
    with pytest.raises(UnknownTopic):
        node.broker.administration.delete_records("nowhere", 0, before_offset=0)


def test_the_disk_is_described_as_it_is() -> None:
    node = Node()
    node.disk.fill_after(1234)
    assert node.broker.free_bytes() == 1234
    assert node.broker.total_bytes() == node.disk.total_bytes()


def test_ids_are_sixteen_bytes_and_all_different() -> None:
    node = Node()
    ids = {node.broker.new_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(one) for one in ids} == {16}


@pytest.mark.parametrize("fsync", ["every", "interval", "none"])
def test_what_was_acknowledged_is_there_after_a_clean_stop(fsync: str) -> None:
    node = Node(storage__fsync=fsync)
    node.create("orders")
    node.produce("orders", ["a", "b"])
    node.stop()
    node.start()
    assert node.values("orders") == [b"a", b"b"]
