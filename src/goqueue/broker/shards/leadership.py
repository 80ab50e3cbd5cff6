"""Starts and stops the owners of internal partitions with leadership.

An owner reads its whole partition when it starts. If this replica has a gap, the gap may contain
something acknowledged: that a message is done, or that a producer was fenced. So no owner starts
here while another node with all records can lead, or may still return.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.partition import Partition

RETRY_MS = 500  # before checking again whether this is the only node left

_log = logging.getLogger(__name__)


OfPartition = Callable[[Partition], None]


def _nothing(_: Partition) -> None:
    """Stand in for an owner that only follows one of the two changes."""


class _Owner(NamedTuple):
    lead: OfPartition
    resign: OfPartition


class Leadership:
    """Notifies the owners of internal topics which partitions this node leads.

    A single node leads all of them, from the moment a topic exists.
    """

    def __init__(self, clock: Clock, topics: Topics, cluster: Clustering | None) -> None:
        self._clock = clock
        self._topics = topics
        self._cluster = cluster
        self._owners: dict[str, list[_Owner]] = {}  # by internal topic, in the order of their start

    def register(
        self, topic: str, *, lead: OfPartition = _nothing, resign: OfPartition = _nothing
    ) -> None:
        """Have an owner follow the leadership of the partitions of an internal topic.

        `resign` may be called for a partition that was never led here.
        """
        self._owners.setdefault(topic, []).append(_Owner(lead, resign))

    def open(self) -> None:
        """Start the owners of existing topics, in the order of registration.

        In a cluster they start when this node has been elected.
        """
        if self._cluster is not None:
            self._cluster.replicas.on_role(self._role_changed)
            return
        for name in self._owners:
            self._topics.internal.on_made(name, self._lead_all)
            topic = self._topics.find(name)
            if topic is not None:
                self._lead_all(topic)

    def _lead_all(self, topic: Topic) -> None:
        for owner in self._owners[topic.name]:
            for partition in topic.partitions:
                owner.lead(partition)

    def _role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        if topic.name not in self._owners:
            return
        self._notify(topic, partition, leads=leads)
        if leads and self._is_unfit(topic, partition):
            # No client has been answered yet, because all of this happens in one turn.
            _log.error("%s has a gap here; another node should coordinate it", partition.name)
            self._notify(topic, partition, leads=False)
            again = partial(self._start_again, topic, partition, partition.leader_epoch)
            self._clock.call_later(RETRY_MS, again)

    def _is_unfit(self, topic: Topic, partition: Partition) -> bool:
        assert self._cluster is not None
        return self._cluster.integrity.is_unfit(topic.id, partition.name.partition)

    def _notify(self, topic: Topic, partition: Partition, *, leads: bool) -> None:
        for owner in self._owners[topic.name]:
            (owner.lead if leads else owner.resign)(partition)

    def _start_again(self, topic: Topic, partition: Partition, epoch: int) -> None:
        """Retry if no other node took over; with no other left, go on with what there is."""
        assert self._cluster is not None
        is_led = self._cluster.replicas.leads(topic.id, partition.name.partition)
        if is_led and partition.leader_epoch == epoch:
            self._role_changed(topic, partition, True)
