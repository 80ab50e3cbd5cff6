"""The broker in memory, with what a planner asks besides: ids, sizes, groups; and its options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from goqueue.client import Groups, LogClient, Nodes, Offsets
from goqueue.model.batch import Record, encode_batch
from goqueue.model.names import TopicPartition
from goqueue.spark import workers
from goqueue.spark.options import ReadOptions, read_options
from goqueue.wire.kafka.messages import (
    describe_log_dirs,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
)
from tests.unit.client.fake_broker import FakeBroker

ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))


@dataclass
class SparkBroker(FakeBroker):
    """Topics with ids; a topic that is made again gets another."""

    lives: dict[str, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)  # where the log is held to end
    commits: list[tuple[str, dict[TopicPartition, int]]] = field(default_factory=list)
    group_error: int = 0
    looks: int = 0

    def client(self) -> LogClient:
        client = LogClient("fake:9092")
        client.cluster = self.cluster(metadata_age_ms_max=0)
        client.offsets = Offsets(client.cluster)
        client.nodes = Nodes(client.cluster)
        client.groups = Groups(client.cluster)
        return client

    def write(self, partition: TopicPartition, count: int, size: int = 10) -> None:
        self.append(partition, encode_batch([Record(None, b"x" * size)] * count))

    def recreate(self, topic: str) -> None:
        self.lives[topic] = self.lives.get(topic, 0) + 1
        for partition in [one for one in self.logs if one.topic == topic]:
            del self.logs[partition]

    def topic_id(self, topic: str) -> bytes:
        return f"{topic[:12]}-{self.lives.get(topic, 0)}".encode().ljust(16)

    def end(self, partition: TopicPartition) -> int:
        return min(super().end(partition), self.ends.get(partition, 1 << 62))

    def metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        if request.topics is None:
            named = [metadata.MetadataRequestTopic(name=name) for name in self.topics]
            request = metadata.MetadataRequest(named)
        return super().metadata(request)

    def _topic(self, name: str) -> metadata.MetadataResponseTopic:
        topic = super()._topic(name)
        topic.topic_id = self.topic_id(name)
        topic.is_internal = name.startswith("__")
        return topic

    def list_offsets(
        self, request: list_offsets.ListOffsetsRequest
    ) -> list_offsets.ListOffsetsResponse:
        self.looks += 1
        return super().list_offsets(request)

    def fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        self.clock.sleep(request.max_wait_ms / 1000)
        return super().fetch(request)

    def describe_log_dirs(
        self, request: describe_log_dirs.DescribeLogDirsRequest
    ) -> describe_log_dirs.DescribeLogDirsResponse:
        topics = [
            describe_log_dirs.DescribeLogDirsTopic(
                each.topic,
                [
                    describe_log_dirs.DescribeLogDirsPartition(number, self._size(each, number))
                    for number in each.partitions
                ],
            )
            for each in request.topics or []
        ]
        found = describe_log_dirs.DescribeLogDirsResult(0, "data", topics)
        return describe_log_dirs.DescribeLogDirsResponse(results=[found])

    def _size(self, topic: Any, number: int) -> int:
        return sum(map(len, self.logs[TopicPartition(topic.topic, number)]))

    def find_coordinator(
        self, request: find_coordinator.FindCoordinatorRequest
    ) -> find_coordinator.FindCoordinatorResponse:
        found = find_coordinator.Coordinator(request.coordinator_keys[0], 1, "fake", 9092)
        return find_coordinator.FindCoordinatorResponse(coordinators=[found])

    def offset_commit(
        self, request: offset_commit.OffsetCommitRequest
    ) -> offset_commit.OffsetCommitResponse:
        offsets = {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }
        self.commits.append((request.group_id, offsets))
        partition = offset_commit.OffsetCommitResponsePartition(0, self.group_error)
        topic = offset_commit.OffsetCommitResponseTopic("orders", partitions=[partition])
        return offset_commit.OffsetCommitResponse(topics=[topic])

    def offset_fetch(
        self, request: offset_fetch.OffsetFetchRequest
    ) -> offset_fetch.OffsetFetchResponse:
        group = request.groups[0].group_id
        known: dict[TopicPartition, int] = {}
        for name, offsets in self.commits:
            known |= offsets if name == group else {}
        topics = [
            offset_fetch.OffsetFetchResponseTopics(
                one.topic,
                partitions=[offset_fetch.OffsetFetchResponsePartitions(one.partition, offset)],
            )
            for one, offset in known.items()
        ]
        found = offset_fetch.OffsetFetchResponseGroup(group, topics)
        return offset_fetch.OffsetFetchResponse(groups=[found])


def table_options(**options: str) -> ReadOptions:
    return read_options({"subscribe": "orders", **options}, is_streaming=False)


def stream_options(**options: str) -> ReadOptions:
    given = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    if "subscribePattern" in options or "assign" in options:
        del given["subscribe"]
    return read_options(given, is_streaming=True)


def serve_tasks(broker: SparkBroker, patch: pytest.MonkeyPatch) -> None:
    """Tasks read from this broker, and what they leave for the next is not the next test's."""
    patch.setattr(workers, "connect_again", lambda *_: broker.client())
    patch.setattr(workers, "_idle", {})
