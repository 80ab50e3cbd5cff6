"""Topics: create, list, describe, configure, extend, delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goqueue.client.cluster import Cluster, TopicView, wait_for
from goqueue.client.configs import ConfigEntry, ConfigOwner, Configs
from goqueue.client.errors import ErrorContext, check
from goqueue.client.nodes import Nodes
from goqueue.client.offsets import Offsets
from goqueue.model.errors import UnsupportedVersion
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
)

BROKER_DEFAULT = -1  # the broker chooses the count
TO_THE_END = -1  # delete all records


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start_offset: int
    end_offset: int
    size_bytes: int | None  # on the leader; None if the brokers do not report it


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    settings: tuple[ConfigEntry, ...]


class Topics:
    """Manages topics.

    >>> client.topics.create("orders", partition_count=3, settings={"retention.ms": "60000"})
    >>> [topic.name for topic in client.topics.list_all()]
    ['orders']
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._configs = Configs(cluster)

    def create(
        self,
        name: str,
        *,
        partition_count: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        settings: Mapping[str, str] | None = None,
        is_only_checked: bool = False,
    ) -> None:
        """Create a topic; return when it can be written to."""
        wanted = create_topics.CreatableTopic(
            name,
            partition_count,
            replication_factor,
            configs=[
                create_topics.CreatableTopicConfig(setting, value)
                for setting, value in (settings or {}).items()
            ],
        )
        request = create_topics.CreateTopicsRequest([wanted], self._wait_ms, is_only_checked)

        def attempt() -> None:
            for each in self._cluster.call_controller(create_topics, request).topics:
                check(each.error_code, each.error_message, ErrorContext(name))

        self._cluster.retrying(attempt)
        if not is_only_checked:
            wait_for(self._cluster, name, partition_count=max(partition_count, 1))

    def list_all(self, *, has_internal: bool = False) -> list[TopicView]:
        """All topics by name; internal ones only on request."""
        found = self._cluster.retrying(self._cluster.topics)
        return [topic for topic in found if has_internal or not topic.is_internal]

    def view(self, name: str) -> TopicView:
        """Describe one topic as it is now."""
        self._cluster.forget()
        return self._cluster.retrying(lambda: self._cluster.topic(name))

    def describe(self, name: str) -> TopicDescription:
        """One topic with its offsets, sizes and settings."""
        view = self.view(name)
        ranges = Offsets(self._cluster).ranges(view.names)
        sizes = self._sizes(view)
        partitions = [
            PartitionDescription(
                index=each.index,
                leader=each.leader,
                replicas=each.replicas,
                in_sync=each.in_sync,
                start_offset=ranges[partition].start,
                end_offset=ranges[partition].end,
                size_bytes=sizes.get((each.leader, partition)),
            )
            for each, partition in zip(view.partitions, view.names, strict=True)
        ]
        settings = self._configs.describe(ConfigOwner.TOPIC, name)
        return TopicDescription(
            view.name, view.id, view.is_internal, tuple(partitions), tuple(settings)
        )

    def configure(self, name: str, values: Mapping[str, str | None]) -> None:
        """Change settings; None resets one to its default."""
        self._configs.change(ConfigOwner.TOPIC, name, values)

    def grow(self, name: str, *, partition_count: int) -> None:
        """Add partitions up to `partition_count`. Keys may map to other partitions afterwards."""
        wanted = create_partitions.CreatePartitionsTopic(name, partition_count, None)
        request = create_partitions.CreatePartitionsRequest([wanted], self._wait_ms)

        def attempt() -> None:
            for each in self._cluster.call_controller(create_partitions, request).results:
                check(each.error_code, each.error_message, ErrorContext(name))

        self._cluster.retrying(attempt)
        wait_for(self._cluster, name, partition_count=partition_count)

    def delete(self, name: str) -> None:
        """Delete a topic with all its records."""
        wanted = delete_topics.DeleteTopicState(name)
        request = delete_topics.DeleteTopicsRequest([wanted], timeout_ms=self._wait_ms)

        def attempt() -> None:
            for each in self._cluster.call_controller(delete_topics, request).responses:
                check(each.error_code, each.error_message, ErrorContext(name))

        self._cluster.retrying(attempt)
        self._cluster.forget()

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before the given offsets; return the new start of each partition."""
        return self._cluster.retrying(lambda: self._delete_records(before))

    def _delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        requests = {
            node: delete_records.DeleteRecordsRequest(
                [
                    delete_records.DeleteRecordsTopic(
                        name,
                        [
                            delete_records.DeleteRecordsPartition(
                                index, before[TopicPartition(name, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in topics.items()
                ],
                self._wait_ms,
            )
            for node, topics in self._cluster.by_leader(before).items()
        }
        starts = {}
        for response in self._cluster.call_leaders(delete_records, requests):
            for topic in response.topics:
                for each in topic.partitions:
                    check(each.error_code, None, ErrorContext(topic.name, each.partition_index))
                    partition = TopicPartition(topic.name, each.partition_index)
                    starts[partition] = each.low_watermark
        return starts

    def _sizes(self, view: TopicView) -> dict[tuple[int, TopicPartition], int]:
        """Bytes on disk, by broker and partition."""
        wanted = {view.name: [each.index for each in view.partitions]}
        try:
            folders = Nodes(self._cluster).log_dirs(wanted)
        except UnsupportedVersion:
            return {}
        return {
            (folder.node_id, partition): size
            for folder in folders
            for partition, size in folder.sizes.items()
        }

    @property
    def _wait_ms(self) -> int:
        return self._cluster.settings.answer_wait_ms
