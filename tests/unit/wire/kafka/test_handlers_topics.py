"""Metadata, and making, growing, deleting and listing topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.create_partitions import CreatePartitionsAssignment
from goqueue.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from goqueue.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from goqueue.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from goqueue.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.wire.kafka.client import Client, failures
from tests.unit.wire.kafka.requests import create_request, delete_topics_request, grow_request

__all__ = ["failures"]

METADATA_VERSIONS = range(14)
CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)


@pytest.fixture
def client(failures: list[Exception]) -> Iterator[Client]:
    yield Client()
    assert failures == []


def names(client: Client) -> set[str]:
    return {topic.name for topic in client.node.broker.topics}


def metadata(client: Client, version: int, *topics: str, **fields: Any) -> Any:
    wanted = [MetadataRequestTopic(name=name) for name in topics]
    return client.call("Metadata", MetadataRequest(topics=wanted, **fields), version)


# Metadata


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_metadata_tells_the_node_and_the_partitions(client: Client, version: int) -> None:
    answer = metadata(client, version, "orders")
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "localhost", 9092)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "orders", False)
    assert [one.partition_index for one in topic.partitions] == [0, 1, 2, 3]
    assert {(one.leader_id, *one.replica_nodes, *one.isr_nodes) for one in topic.partitions} == {
        (1, 1, 1)
    }
    assert topic.topic_id == (client.subject.topic_id if version >= 10 else bytes(16))


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_all_topics_are_told_to_who_asks_for_all(client: Client, version: int) -> None:
    client.node.create("payments")
    request = MetadataRequest(topics=[] if version == 0 else None)
    answer = client.call("Metadata", request, version)
    assert {topic.name for topic in answer.topics} == {"orders", "payments"}


@pytest.mark.parametrize("version", METADATA_VERSIONS[1:])
def test_no_topic_is_told_to_who_asks_for_none(client: Client, version: int) -> None:
    assert metadata(client, version).topics == []


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_a_topic_that_is_asked_for_is_made_if_node_and_client_agree(
    client: Client, version: int
) -> None:
    (topic,) = metadata(client, version, "brand-new").topics
    assert topic.error_code == 0
    assert "brand-new" in names(client)
    if version >= 4:
        (topic,) = metadata(client, version, "newer", allow_auto_topic_creation=False).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "newer" not in names(client)


@pytest.mark.parametrize("version", METADATA_VERSIONS)
@pytest.mark.parametrize("name", ["", "no good", "a" * 300])
def test_an_impossible_name_is_invalid(client: Client, version: int, name: str) -> None:
    (topic,) = metadata(client, version, name).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC, name)


@pytest.mark.parametrize("version", range(10, 14))
def test_a_topic_is_found_by_its_id(
    client: Client, version: int, failures: list[Exception]
) -> None:
    def ask(topic_id: bytes) -> Any:
        wanted = MetadataRequestTopic(topic_id=topic_id, name=None)
        (topic,) = client.call("Metadata", MetadataRequest(topics=[wanted]), version).topics
        return topic

    assert ask(client.subject.topic_id).name == "orders"
    unknown = ask(b"?" * 16)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert unknown.topic_id == b"?" * 16
    assert unknown.name == (None if version >= 12 else "")
    assert failures == []


# Making


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_topic_is_made_as_it_was_asked_for(client: Client, version: int) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="1000")]
    answer = client.call(
        "CreateTopics", create_request("new", num_partitions=3, configs=configs), version
    )
    (one,) = answer.topics
    assert (one.error_code, one.name) == (0, "new")
    topic = client.node.broker.topics.get("new")
    assert (len(topic.partitions), topic.settings.log.retention_ms) == (3, 1000)
    if version >= 5:
        assert (one.num_partitions, one.replication_factor) == (3, 1)
        assert {(c.name, c.value) for c in one.configs} >= {("retention.ms", "1000")}
    if version >= 7:
        assert one.topic_id == topic.id


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_counts_may_be_left_to_the_node(version: int) -> None:
    client = Client(topics__partitions="5")
    request = create_request("new", num_partitions=-1, replication_factor=-1)
    assert client.call("CreateTopics", request, version).topics[0].error_code == 0
    assert len(client.node.broker.topics.get("new").partitions) == 5


def assigned(*nodes: list[int], first: int = 0) -> dict[str, Any]:
    return {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            CreatableReplicaAssignment(partition_index=first + number, broker_ids=ids)
            for number, ids in enumerate(nodes)
        ],
    }


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_replicas_may_be_assigned_to_the_only_node(client: Client, version: int) -> None:
    request = create_request("new", **assigned([1], [1], [1]))
    assert client.call("CreateTopics", request, version).topics[0].error_code == 0
    assert len(client.node.broker.topics.get("new").partitions) == 3


@pytest.mark.parametrize("version", CREATE_VERSIONS)
@pytest.mark.parametrize(
    ("name", "fields", "code"),
    [
        ("orders", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("no good", {}, ErrorCode.INVALID_TOPIC),
        ("new", {"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("new", {"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ("new", {"num_partitions": 1 << 30}, ErrorCode.INVALID_PARTITIONS),
        ("new", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("new", {"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("new", assigned([2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("new", assigned([1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("new", assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("new", assigned([1], first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("new", {**assigned([1]), "num_partitions": 1}, ErrorCode.INVALID_REQUEST),
        (
            "new",
            {"configs": [CreatableTopicConfig(name="retention.ms", value="x")]},
            ErrorCode.INVALID_CONFIG,
        ),
        (
            "new",
            {"configs": [CreatableTopicConfig(name="retention.ms", value=None)]},
            ErrorCode.INVALID_CONFIG,
        ),
        (
            "new",
            {"configs": [CreatableTopicConfig(name="no.such.thing", value="1")]},
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_an_impossible_topic_is_refused_with_the_reason(
    client: Client,
    version: int,
    name: str,
    fields: dict[str, Any],
    code: ErrorCode,
    validate_only: bool,
) -> None:
    request = create_request(name, validate_only=validate_only, **fields)
    (one,) = client.call("CreateTopics", request, version).topics
    assert one.error_code == code
    assert one.error_message
    assert names(client) == {"orders"}


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_who_only_wants_to_know_makes_nothing(client: Client, version: int) -> None:
    (one,) = client.call("CreateTopics", create_request("new", validate_only=True), version).topics
    assert (one.error_code, one.topic_id) == (0, bytes(16))
    assert names(client) == {"orders"}


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_name_that_occurs_twice_is_refused_both_times_and_the_others_are_made(
    client: Client, version: int
) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("twice", "once", "twice")
    ]
    answer = client.call("CreateTopics", CreateTopicsRequest(topics=topics), version)
    codes = [one.error_code for one in answer.topics]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert names(client) == {"orders", "once"}


# Deleting


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_a_topic_is_deleted_by_its_name(client: Client, version: int) -> None:
    (one,) = client.call(
        "DeleteTopics", delete_topics_request(version, "orders"), version
    ).responses
    assert (one.error_code, one.name) == (0, "orders")
    assert names(client) == set()
    (one,) = client.call(
        "DeleteTopics", delete_topics_request(version, "orders"), version
    ).responses
    assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted_by_its_id(client: Client) -> None:
    topic_id = client.subject.topic_id
    (one,) = client.call("DeleteTopics", delete_topics_request(6, None, topic_id), 6).responses
    assert (one.error_code, one.name, one.topic_id) == (0, "orders", topic_id)
    (one,) = client.call("DeleteTopics", delete_topics_request(6, None, topic_id), 6).responses
    assert (one.error_code, one.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert one.topic_id == topic_id


def test_each_topic_of_a_request_has_an_answer_of_its_own(client: Client) -> None:
    states = [
        DeleteTopicState(name="nowhere"),
        DeleteTopicState(name="orders"),
        DeleteTopicState(name="orders"),
    ]
    answer = client.call("DeleteTopics", DeleteTopicsRequest(topics=states), 6)
    assert [one.error_code for one in answer.responses] == [3, 0, 3]


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_a_node_may_refuse_to_delete_topics(version: int) -> None:
    client = Client(topics__delete_enabled="false")
    (one,) = client.call(
        "DeleteTopics", delete_topics_request(version, "orders"), version
    ).responses
    assert one.error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert names(client) == {"orders"}


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_the_brokers_own_topics_stay(client: Client, version: int) -> None:
    client.node.host_groups()
    request = delete_topics_request(version, "__consumer_offsets")
    (one,) = client.call("DeleteTopics", request, version).responses
    assert one.error_code == ErrorCode.INVALID_TOPIC


# Growing


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows(client: Client, version: int) -> None:
    (one,) = client.call("CreatePartitions", grow_request("orders", 6), version).results
    assert one.error_code == 0
    assert len(client.node.broker.topics.get("orders").partitions) == 6


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(
    ("name", "count", "nodes", "code"),
    [
        ("nowhere", 6, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 4, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1 << 30, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 6, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 6, [[1], [2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 6, [[1], [1]], 0),
    ],
)
def test_growing_is_checked_whether_or_not_it_is_done(
    client: Client,
    version: int,
    name: str,
    count: int,
    nodes: list[list[int]] | None,
    code: int,
) -> None:
    assignments = None if nodes is None else [CreatePartitionsAssignment(ids) for ids in nodes]
    for validate_only in (True, False):
        request = grow_request(name, count, validate_only=validate_only, assignments=assignments)
        (one,) = client.call("CreatePartitions", request, version).results
        assert one.error_code == code
        assert bool(one.error_message) == bool(code)
        is_grown = not validate_only and code == 0
        assert len(client.node.broker.topics.get("orders").partitions) == (6 if is_grown else 4)


# Listing page by page


def describe(
    client: Client, *names: str, limit: int = 2000, cursor: RequestCursor | None = None
) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    return client.call("DescribeTopicPartitions", request)


def pages(client: Client, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    """What a tool gets that asks until there is no more."""
    found = []
    cursor = None
    for _ in range(100):
        answer = describe(client, *names, limit=limit, cursor=cursor)
        found.append([(t.name, p.partition_index) for t in answer.topics for p in t.partitions])
        if answer.next_cursor is None:
            return found
        cursor = RequestCursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 100])
def test_topics_come_in_order_page_by_page_each_partition_once(client: Client, limit: int) -> None:
    client.node.create("a", 3)
    client.node.create("z", 2)
    found = pages(client, limit=limit)
    assert [place for page in found for place in page] == [
        *(("a", number) for number in range(3)),
        *(("orders", number) for number in range(4)),
        *(("z", number) for number in range(2)),
    ]
    assert max(len(page) for page in found) <= limit


def test_named_topics_come_in_order_and_once(client: Client) -> None:
    client.node.create("a", 1)
    answer = describe(client, "orders", "nowhere", "a", "orders")
    assert [(one.name, one.error_code) for one in answer.topics] == [
        ("a", 0),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 0),
    ]


@pytest.mark.parametrize("limit", [-5, 0])
def test_a_page_has_at_least_one_partition(client: Client, limit: int) -> None:
    assert len(pages(client, limit=limit)) == 4


@pytest.mark.parametrize("index", [-(1 << 31), -1, 4, 99, (1 << 31) - 1])
def test_a_cursor_beyond_the_partitions_is_brought_back(
    client: Client, index: int, failures: list[Exception]
) -> None:
    client.node.create("z", 9)
    cursor = RequestCursor(topic_name="orders", partition_index=index)
    answer = describe(client, limit=3, cursor=cursor)
    found = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
    first = [("orders", number) for number in range(3)]
    assert found == (first if index < 0 else [("z", 0), ("z", 1), ("z", 2)])
    assert failures == []


def test_a_cursor_at_a_topic_that_is_gone_goes_on_with_the_next(client: Client) -> None:
    cursor = RequestCursor(topic_name="middle", partition_index=3)
    answer = describe(client, cursor=cursor)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("orders", 4)]
