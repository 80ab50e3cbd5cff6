"""The logs of partitions that this node leads, their replicas, and the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.metrics import Samples
from goqueue.metrics import catalogue as c
from goqueue.partition import Partition


class Space(NamedTuple):
    """The disk with the data."""

    free_bytes: Callable[[], int]
    total_bytes: Callable[[], int]
    is_full: Callable[[], bool]


class PartitionCollector:
    """Sizes by topic or by partition, and how far the slowest replicas are behind."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        cluster: Clustering | None,
        space: Space,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._cluster = cluster
        self._space = space

    def collect(self, samples: Samples) -> Iterator[None]:
        is_detailed = samples.wants(c.PARTITION_LOG)
        if not is_detailed and not samples.wants(c.STORAGE_LOG):
            return
        if not is_detailed:
            yield from self._begin(samples)
        for topic in self._topics:
            for partition in list(topic.partitions):
                if is_detailed:
                    self._add_details(samples, topic, partition)
                else:
                    self._add(samples, topic, partition)
                yield

    def _begin(self, samples: Samples) -> Iterator[None]:
        for metric in (c.STORAGE_PARTITIONS, c.STORAGE_FAILED_PARTITIONS):
            samples.set(metric, 0)
        samples.set(c.STORAGE_FREE, self._space.free_bytes())
        samples.set(c.STORAGE_TOTAL, self._space.total_bytes())
        samples.set(c.STORAGE_FULL, int(self._space.is_full()))
        if self._cluster is not None:
            for metric in (
                c.CLUSTER_LED,
                c.CLUSTER_REPLICAS,
                c.CLUSTER_UNDER_REPLICATED,
                c.CLUSTER_UNDER_MIN_IN_SYNC,
                c.CLUSTER_REPLICATION_LAG_SECONDS,
            ):
                samples.set(metric, 0)
        yield

    def _is_led(self, topic: Topic, partition: Partition) -> bool:
        return not partition.is_following and self._leaders.is_here(topic, partition.name.partition)

    def _add(self, samples: Samples, topic: Topic, partition: Partition) -> None:
        if partition.failure is not None and self._topics.keeps(partition):
            samples.add(c.STORAGE_FAILED_PARTITIONS, 1)
        if self._cluster is not None and self._topics.keeps(partition):
            samples.add(c.CLUSTER_REPLICAS, 1)
        if not self._is_led(topic, partition):
            return
        samples.add(c.STORAGE_PARTITIONS, 1)
        samples.add(c.STORAGE_LOG, partition.log.size, topic.name)
        samples.add(c.STORAGE_SEGMENTS, len(partition.log.segments), topic.name)
        if self._cluster is not None:
            self._add_replicas(samples, self._cluster, topic, partition)

    def _add_replicas(
        self, samples: Samples, cluster: Clustering, topic: Topic, partition: Partition
    ) -> None:
        led = cluster.replicas.led.get((topic.id, partition.name.partition))
        if led is None:
            return
        samples.add(c.CLUSTER_LED, 1)
        replicas, now_ms = led.replicas, self._clock.now_ms()
        behind, behind_ms = replicas.behind(partition.end_offset, now_ms)
        samples.add(c.CLUSTER_REPLICATION_LAG_MESSAGES, behind, topic.name)
        samples.maximum(c.CLUSTER_REPLICATION_LAG_SECONDS, behind_ms / 1000)
        if len(replicas.in_sync) < len(replicas.replicas):
            samples.add(c.CLUSTER_UNDER_REPLICATED, 1)
        if len(replicas.in_sync) < replicas.in_sync_min:
            samples.add(c.CLUSTER_UNDER_MIN_IN_SYNC, 1)

    def _add_details(self, samples: Samples, topic: Topic, partition: Partition) -> None:
        if not self._is_led(topic, partition):
            return
        number = partition.name.partition
        labels = topic.name, str(number)
        samples.set(c.PARTITION_LOG, partition.log.size, *labels)
        samples.set(c.PARTITION_SEGMENTS, len(partition.log.segments), *labels)
        samples.set(c.PARTITION_START, partition.start_offset, *labels)
        samples.set(c.PARTITION_END, partition.end_offset, *labels)
        samples.set(c.PARTITION_HIGH_WATERMARK, partition.high_watermark, *labels)
        if self._cluster is not None:
            led = self._cluster.replicas.led.get((topic.id, number))
            if led is not None:
                samples.set(c.PARTITION_IN_SYNC, len(led.replicas.in_sync), *labels)
