"""Queue groups that this node owns: their messages by state, and by lane."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.host import HostedQueue
from goqueue.delivery import LANE_COUNT, LANE_NAMES, NORMAL, partition_stats
from goqueue.delivery.partition_queue import PartitionQueue
from goqueue.loop.clock import Clock
from goqueue.metrics import Samples
from goqueue.metrics import catalogue as c


class QueueCollector:
    """Ready, in flight and waiting messages, and the age of the oldest."""

    def __init__(self, clock: Clock, groups: QueueGroups) -> None:
        self._clock = clock
        self._groups = groups

    def collect(self, samples: Samples) -> Iterator[None]:
        is_wanted = any(
            samples.wants(one)
            for one in (c.QUEUE_READY, c.QUEUE_PARTITION_READY, c.LANE_PARTITION_READY)
        )
        if not is_wanted:
            return
        for hosted in self._groups.hosted_here():
            has_lanes = any(map(_uses_lanes, hosted.queue.partitions))
            for partition in list(hosted.queue.partitions):
                self._add(samples, hosted, partition)
                if has_lanes:
                    self._add_lanes(samples, hosted, partition)
                yield
            yield

    def _add(self, samples: Samples, hosted: HostedQueue, partition: PartitionQueue) -> None:
        found = partition_stats(partition, self._clock.now_ms())
        waiting = found.retrying + found.parked + found.delayed
        age = found.oldest_age_ms / 1000
        group, topic = hosted.group, hosted.topic.name
        if samples.wants(c.QUEUE_READY):
            samples.add(c.QUEUE_READY, found.ready, group, topic)
            samples.add(c.QUEUE_IN_FLIGHT, found.in_flight, group, topic)
            samples.add(c.QUEUE_WAITING, waiting, group, topic)
            samples.maximum(c.QUEUE_OLDEST_AGE, age, group, topic)
        if samples.wants(c.QUEUE_PARTITION_READY):
            number = str(partition.number)
            samples.set(c.QUEUE_PARTITION_READY, found.ready, group, topic, number)
            samples.set(c.QUEUE_PARTITION_IN_FLIGHT, found.in_flight, group, topic, number)
            samples.set(c.QUEUE_PARTITION_WAITING, waiting, group, topic, number)
            samples.set(c.QUEUE_PARTITION_OLDEST_AGE, age, group, topic, number)

    def _add_lanes(self, samples: Samples, hosted: HostedQueue, partition: PartitionQueue) -> None:
        now_ms = self._clock.now_ms()
        for lane in range(LANE_COUNT):
            ready = partition.ready[lane]
            age = max(0, now_ms - partition.oldest_ms(lane)) / 1000 if ready else 0
            group, topic, name = hosted.group, hosted.topic.name, LANE_NAMES[lane]
            if samples.wants(c.LANE_READY):
                samples.add(c.LANE_READY, ready, group, topic, name)
                samples.maximum(c.LANE_OLDEST_AGE, age, group, topic, name)
            if samples.wants(c.LANE_PARTITION_READY):
                number = str(partition.number)
                samples.set(c.LANE_PARTITION_READY, ready, group, topic, number, name)
                samples.set(c.LANE_PARTITION_OLDEST_AGE, age, group, topic, number, name)


def _uses_lanes(partition: PartitionQueue) -> bool:
    """Whether a partition has had messages of more than the normal priority."""
    return any(total for lane, total in enumerate(partition.in_total) if lane != NORMAL)
