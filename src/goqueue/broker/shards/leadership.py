"""Starts and stops coordinators with the leadership of their internal partitions.

A coordinator reads its whole partition when it starts. If this replica turns out to have a hole,
the hole may hold something that was acknowledged: that a message is done, or that a producer was
fenced. So no coordinator starts here while another node can lead, or may still come back, with
all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.topics.topics import Topic
from goqueue.loop.clock import Clock
from goqueue.partition import Partition

RETRY_MS = 500  # how soon to see whether nobody but this node is left after all

_log = logging.getLogger(__name__)


class CoordinatorLifecycle:
    """Has coordinators begin and end with the leadership of their partitions."""

    def __init__(
        self,
        clock: Clock,
        cluster: Clustering,
        changed: Callable[[Topic, Partition, bool], None],
    ) -> None:
        """`changed` has whoever coordinates by a partition begin, when it is led here, or end.

        It may be told twice in a row to end.
        """
        self._clock = clock
        self._cluster = cluster
        self._changed = changed

    def role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        self._changed(topic, partition, leads)
        if leads and self._cluster.integrity.is_unfit(topic.id, partition.name.partition):
            # Nobody has been answered yet, for all of this happens in one turn.
            _log.error("%s has a hole here; another node is to coordinate by it", partition.name)
            self._changed(topic, partition, False)
            again = partial(self._begin_again, topic, partition, partition.leader_epoch)
            self._clock.call_later(RETRY_MS, again)

    def _begin_again(self, topic: Topic, partition: Partition, epoch: int) -> None:
        """Nobody has taken over: try again, and coordinate with what there is if nobody can."""
        is_led = self._cluster.replicas.leads(topic.id, partition.name.partition)
        if is_led and partition.leader_epoch == epoch:
            self.role_changed(topic, partition, True)
