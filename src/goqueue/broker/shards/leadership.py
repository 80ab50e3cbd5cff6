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
from goqueue.model.errors import UnsupportedVersion
from goqueue.model.names import TopicPartition
from goqueue.partition import Partition

RETRY_MS = 500  # before checking again whether this is the only node left

_log = logging.getLogger(__name__)


OfPartition = Callable[[Partition], None]
# Called with a partition in which a later release has written.
Unreadable = Callable[[Partition, UnsupportedVersion], None]


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
        # Partitions led here without an owner: a later release has written records in them.
        self._unreadable: dict[TopicPartition, None] = {}

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
            self._cluster.add_illness(lambda: self.lacks_release)
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
        self._unreadable.pop(partition.name, None)
        try:
            self._notify(topic, partition, leads=leads)
        except UnsupportedVersion as error:
            self._resign(topic, partition, error)
            return
        if leads and self._is_unfit(topic, partition):
            # No client has been answered yet, because all of this happens in one turn.
            _log.error("%s has a gap here; another node should coordinate it", partition.name)
            self._notify(topic, partition, leads=False)
            again = partial(self._start_again, topic, partition, partition.leader_epoch)
            self._clock.call_later(RETRY_MS, again)

    def hand_over(self, partition: Partition, error: UnsupportedVersion) -> None:
        """Resign a partition in which a later release has written, found after its owner started.

        On a single node nobody else could lead it, and its owner refuses what it cannot do.
        """
        topic, epoch = self._topics.find(partition.name.topic), partition.leader_epoch
        if topic is None or self._cluster is None:
            _log.error("%s cannot be read: %s", partition.name, error)
            return

        def resign() -> None:
            if self._is_led(topic, partition, epoch) and partition.name not in self._unreadable:
                self._resign(topic, partition, error)

        self._clock.call_soon(resign)  # Not while the owner is being started.

    def _resign(self, topic: Topic, partition: Partition, error: UnsupportedVersion) -> None:
        """Have another node lead a partition, which may be able to read it."""
        _log.error("%s cannot be coordinated here: %s", partition.name, error)
        self._unreadable[partition.name] = None
        self._notify(topic, partition, leads=False)

    @property
    def lacks_release(self) -> bool:
        """Return whether this node leads something that only a later release can read."""
        return bool(self._unreadable)

    def _is_unfit(self, topic: Topic, partition: Partition) -> bool:
        assert self._cluster is not None
        return self._cluster.integrity.is_unfit(topic.id, partition.name.partition)

    def _notify(self, topic: Topic, partition: Partition, *, leads: bool) -> None:
        for owner in self._owners[topic.name]:
            (owner.lead if leads else owner.resign)(partition)

    def _start_again(self, topic: Topic, partition: Partition, epoch: int) -> None:
        """Retry if no other node took over; with no other left, go on with what there is."""
        if self._is_led(topic, partition, epoch):
            self._role_changed(topic, partition, True)

    def _is_led(self, topic: Topic, partition: Partition, epoch: int) -> bool:
        """Return whether this node leads a partition, and has done so since an epoch."""
        assert self._cluster is not None
        is_led = self._cluster.replicas.leads(topic.id, partition.name.partition)
        return is_led and partition.leader_epoch == epoch
