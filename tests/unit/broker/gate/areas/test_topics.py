"""Topics through the gate: what a session may see and make."""

from __future__ import annotations

import pytest

from goqueue.model.access import CLUSTER, Action, Resource
from goqueue.model.errors import (
    AccessDenied,
    InvalidPartitionCount,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    TopicDeletionDisabled,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from tests.unit.broker.gate.areas.policies import ALICE, Only, topic
from tests.unit.broker.node import Node


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders", partitions=2)
    node.create("secrets")
    return node


def test_topics_that_may_not_be_described_look_as_if_they_did_not_exist(node: Node) -> None:
    topics = node.broker.gate.topics
    secret = topics.get(ALICE, topic="secrets").id
    node.broker.gate.policy = Only((Action.DESCRIBE, topic("orders")))
    assert [one.name for one in topics.all(ALICE)] == ["orders"]
    assert [one.name for one in topics.summaries(ALICE, with_internal=True)] == ["orders"]
    with pytest.raises(UnknownTopicId):
        topics.get_by_id(ALICE, topic_id=secret)
    with pytest.raises(AccessDenied):
        topics.get(ALICE, topic="secrets")


@pytest.mark.parametrize("resource", [CLUSTER, topic("new")])
def test_a_topic_is_made_by_whoever_may_create_it_or_any(node: Node, resource: Resource) -> None:
    node.broker.gate.policy = Only((Action.CREATE, resource))
    created = node.wait(node.broker.gate.topics.create(ALICE, name="new", partition_count=3))
    assert (created.partition_count, created.replication_factor) == (3, 1)
    node.broker.gate.policy = Only((Action.CREATE, topic("new")))
    with pytest.raises(AccessDenied):
        node.wait(node.broker.gate.topics.create(ALICE, name="other"))


def test_a_dry_run_checks_and_makes_nothing(node: Node) -> None:
    topics = node.broker.gate.topics
    created = node.wait(topics.create(ALICE, name="new", partition_count=3, dry_run=True))
    assert created == (None, 3, 1)
    assert topics.find(ALICE, topic="new") is None
    with pytest.raises(TopicExists):
        node.wait(topics.create(ALICE, name="orders", dry_run=True))
    with pytest.raises(InvalidPartitionCount):
        node.wait(topics.create(ALICE, name="new", partition_count=0, dry_run=True))


def test_a_node_that_is_alone_keeps_one_replica(node: Node) -> None:
    topics, here = node.broker.gate.topics, node.broker.node_id
    with pytest.raises(InvalidReplicationFactor):
        node.wait(topics.create(ALICE, name="new", replication_factor=2))
    with pytest.raises(InvalidReplicaAssignment):
        node.wait(topics.create(ALICE, name="new", assignment=[[here], [here + 1]]))
    created = node.wait(topics.create(ALICE, name="new", assignment=[[here], [here]]))
    assert created.partition_count == 2
    with pytest.raises(InvalidReplicaAssignment):
        node.wait(topics.grow(ALICE, topic="new", partition_count=3, assignment=[[here + 1]]))
    node.wait(topics.grow(ALICE, topic="new", partition_count=3, assignment=[[here]]))
    assert len(topics.placements(ALICE, topic="new")) == 3
    assert len(topics.placements(ALICE, topic="new", first=1, last=2)) == 1


def test_a_topic_at_its_first_use_is_created_only_by_who_may(node: Node) -> None:
    topics = node.broker.gate.topics
    node.broker.gate.policy = Only((Action.DESCRIBE, topic("new")))
    with pytest.raises(AccessDenied):
        node.wait(topics.use(ALICE, topic="new"))
    with pytest.raises(UnknownTopic):
        node.wait(topics.use(ALICE, topic="new", may_create=False))
    node.broker.gate.policy = None
    assert node.wait(topics.use(ALICE, topic="new")).name == "new"


def test_a_description_has_the_size_and_the_settings_in_effect(node: Node) -> None:
    node.produce("orders", ["a", "b"], partition=1)
    found = node.wait(node.broker.gate.topics.describe(ALICE, topic="orders"))
    assert found.summary.partition_count == 2
    assert found.offsets_in_use == 2
    assert found.size > 0
    assert found.effective_settings["lane_mode"] == "weighted"
    states = node.wait(node.broker.gate.topics.partitions(ALICE, topic="orders"))
    assert [one.bounds.high_watermark for one in states] == [0, 2]
    assert {one.placement.leader for one in states} == {node.broker.node_id}


def test_nothing_is_deleted_where_that_is_disabled() -> None:
    node = Node(topics__delete_enabled="false")
    node.create("orders")
    with pytest.raises(TopicDeletionDisabled):
        node.wait(node.broker.gate.topics.delete(ALICE, topic="orders"))
    assert node.broker.gate.topics.find(ALICE, topic="orders") is not None
