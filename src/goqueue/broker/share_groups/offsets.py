"""Where share groups are in partitions, on the node that owns them."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.topics.topics import Topics
from goqueue.delivery import Queue, partition_stats
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.share_groups import ShareOffset, ShareWanted


class ShareOffsets:
    """Describes positions, and drops them."""

    def __init__(self, topics: Topics, hosts: QueueHosts, groups: QueueGroups) -> None:
        self._topics = topics
        self._hosts = hosts
        self._groups = groups

    def describe(self, name: str, partitions: Sequence[ShareWanted] | None) -> list[ShareOffset]:
        """Return the positions of a group in these partitions, or in all that it has read."""
        group = self._groups.owned(name)
        self._hosts.check_open(group)
        by_topic = {name: one.queue for name, one in group.queues.items()}
        if partitions is None:
            partitions = [
                ShareWanted(topic, number)
                for topic in sorted(by_topic)
                for number in range(len(by_topic[topic].partitions))
            ]
        return [self._describe(by_topic.get(one.topic), one) for one in partitions]

    def _describe(self, queue: Queue | None, wanted: ShareWanted) -> ShareOffset:
        try:
            self._topics.get(wanted.topic).partition(wanted.partition)
        except GoQueueError as error:
            return ShareOffset(wanted.topic, wanted.partition, error=error)
        if queue is None or wanted.partition >= len(queue.partitions):
            return ShareOffset(wanted.topic, wanted.partition)
        stats = partition_stats(queue.partitions[wanted.partition], self._hosts.clock.now_ms())
        return ShareOffset(wanted.topic, wanted.partition, stats.done_before, stats.open_count)

    async def forget(self, name: str, topic_name: str) -> None:
        """Forget everything about a group in a topic, as if it had never read it."""
        group = self._groups.owned(name)
        topic = self._topics.get(topic_name)
        self._hosts.check_served(group, topic)
        hosted = group.queues.get(topic.name)
        if hosted is None:
            raise InvalidRequest(f"Group {name!r} does not read topic {topic_name!r}.")
        await self._hosts.end_queue(group, hosted)
