"""Starts and stops coordinators with the leadership of their internal partitions.

A coordinator reads its whole partition when it starts. If this replica has a gap, the gap may
contain something acknowledged: that a message is done, or that a producer was fenced. So no
coordinator starts here while another node with all records can lead, or may still return.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.topics.topics import Topic
from goqueue.loop.clock import Clock
from goqueue.partition import Partition

RETRY_MS = 500  # before checking again whether this is the only node left

_log = logging.getLogger(__name__)


class CoordinatorLifecycle:
    """Starts and stops coordinators with the leadership of their partitions."""

    def __init__(
        self,
        clock: Clock,
        cluster: Clustering,
        changed: Callable[[Topic, Partition, bool], None],
    ) -> None:
        """`changed` starts the coordinator of a partition, if it is led here, or stops it.

        It may be called twice in a row to stop.
        """
        self._clock = clock
        self._cluster = cluster
        self._changed = changed

    def role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        self._changed(topic, partition, leads)
        if leads and self._cluster.integrity.is_unfit(topic.id, partition.name.partition):
            # No client has been answered yet, because all of this happens in one turn.
            _log.error("%s has a gap here; another node should coordinate it", partition.name)
            self._changed(topic, partition, False)
            again = partial(self._begin_again, topic, partition, partition.leader_epoch)
            self._clock.call_later(RETRY_MS, again)

    def _begin_again(self, topic: Topic, partition: Partition, epoch: int) -> None:
        """Retry if no other node took over; with no other left, coordinate with what there is."""
        is_led = self._cluster.replicas.leads(topic.id, partition.name.partition)
        if is_led and partition.leader_epoch == epoch:
            self.role_changed(topic, partition, True)
