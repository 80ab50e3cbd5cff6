"""The node itself: versions, addresses, coordinators, producer ids and disk use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from goqueue.model.batch import Record
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from goqueue.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.unit.wire.kafka.client import Client, failures
from tests.unit.wire.kafka.requests import SERVED, coordinator_request

__all__ = ["failures"]


@pytest.fixture
def client(failures: list[Exception]) -> Iterator[Client]:
    yield Client()
    assert failures == []


@pytest.mark.parametrize("version", range(6))
def test_every_api_that_is_served_is_announced(client: Client, version: int) -> None:
    answer = client.ask("ApiVersions", version)
    assert answer.error_code == 0
    assert {one.api_key for one in answer.api_keys} == {api.key for api in SERVED}


def test_a_version_that_kafka_may_still_change_is_not_announced(client: Client) -> None:
    announced = {one.api_key: one.max_version for one in client.ask("ApiVersions").api_keys}
    assert announced[22] == 5


@pytest.mark.parametrize("version", [3, 4, 5])
def test_nothing_of_streams_groups_is_announced(client: Client, version: int) -> None:
    answer = client.ask("ApiVersions", version)
    assert not {88, 89} & {one.api_key for one in answer.api_keys}
    features = [*answer.supported_features, *answer.finalized_features]
    assert "streams.version" not in {one.name for one in features}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_features_are_announced_at_the_level_that_works(client: Client, version: int) -> None:
    answer = client.ask("ApiVersions", version)
    levels = {"group.version": 1, "metadata.version": 25}
    levels |= {"share.version": 1, "transaction.version": 2}
    # Clients of older versions fail to read a level of zero.
    assert {one.name: one.min_version for one in answer.supported_features} == levels
    assert {one.name: one.max_version for one in answer.supported_features} == levels
    assert {one.name: one.max_version_level for one in answer.finalized_features} == levels
    assert answer.finalized_features_epoch >= 0


# Coordinators


@pytest.mark.parametrize("version", range(7))
def test_the_only_node_coordinates_every_group(client: Client, version: int) -> None:
    answer = client.ask("FindCoordinator", version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (0, 1)
    assert (found.host, found.port) == ("localhost", 9092)
    assert client.node.broker.topics.find("__consumer_offsets") is not None


@pytest.mark.parametrize("version", range(1, 7))
def test_the_only_node_coordinates_every_transaction(client: Client, version: int) -> None:
    answer = client.call("FindCoordinator", coordinator_request(version, "till", kind=1), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
    assert client.node.broker.topics.find("__transaction_state") is not None


@pytest.mark.parametrize("version", range(4, 7))
def test_several_coordinators_are_found_at_once(client: Client, version: int) -> None:
    request = coordinator_request(version, "a", "b", "a")
    answer = client.call("FindCoordinator", request, version)
    assert [(one.key, one.node_id) for one in answer.coordinators] == [("a", 1), ("b", 1), ("a", 1)]
    assert client.call("FindCoordinator", coordinator_request(version), version).coordinators == []


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("kind", [2, 99])
def test_what_is_not_coordinated_here_is_refused(client: Client, version: int, kind: int) -> None:
    request = coordinator_request(version, "key", kind=kind)
    answer = client.call("FindCoordinator", request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert found.error_message


@pytest.mark.parametrize("version", range(7))
def test_while_the_topic_of_groups_cannot_be_made_there_is_no_coordinator(
    client: Client, version: int
) -> None:
    client.node.disk.fill_after(0)
    answer = client.ask("FindCoordinator", version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# Producer ids


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(client: Client, version: int) -> None:
    ids = [client.ask("InitProducerId", version) for _ in range(3)]
    assert [one.producer_epoch for one in ids] == [0, 0, 0]
    assert len({one.producer_id for one in ids}) == 3


# Descriptions


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_node(client: Client, version: int) -> None:
    answer = client.ask("DescribeCluster", version)
    assert answer.cluster_id == client.node.broker.cluster_id
    assert answer.controller_id == 1
    assert [(one.broker_id, one.host, one.port) for one in answer.brokers] == [
        (1, "localhost", 9092)
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_there_are_no_endpoints_but_brokers(client: Client, version: int) -> None:
    request = DescribeClusterRequest(endpoint_type=2)
    answer = client.call("DescribeCluster", request, version)
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", range(1, 6))
def test_the_disk_is_described_with_the_size_of_every_partition(
    client: Client, version: int
) -> None:
    client.produce(b"a" * 1000, partition=2)
    answer = client.call("DescribeLogDirs", DescribeLogDirsRequest(topics=None), version)
    (result,) = answer.results
    (topic,) = result.topics
    sizes = {one.partition_index: one.partition_size for one in topic.partitions}
    assert sizes[2] > 1000
    assert sizes[0] == 0
    if version >= 4:
        assert result.total_bytes == client.node.disk.total_bytes()
        assert result.usable_bytes == client.node.disk.free_bytes()


@pytest.mark.parametrize("version", range(1, 6))
def test_unknown_places_are_left_out_of_the_description(client: Client, version: int) -> None:
    assert client.ask("DescribeLogDirs", version, topic="nowhere").results[0].topics == []
    (topic,) = client.ask("DescribeLogDirs", version, partition=9).results[0].topics
    assert topic.partitions == []


def test_the_producers_of_a_partition_are_described(client: Client) -> None:
    partition = client.node.broker.topics.get("orders").partition(0)
    record = Record(None, b"a", timestamp_ms=77)
    client.node.append(partition, [record, record], lambda _: None, producer=(5, 3))
    (one,) = client.ask("DescribeProducers").topics[0].partitions
    (producer,) = one.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (5, 0)
    assert (producer.last_sequence, producer.last_timestamp) == (4, 77)


def test_unknown_places_have_no_producers(client: Client) -> None:
    (one,) = client.ask("DescribeProducers", topic="nowhere").topics[0].partitions
    assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "nowhere" in one.error_message
