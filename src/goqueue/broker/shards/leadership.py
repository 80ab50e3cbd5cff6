"""What a node does besides keeping records where it leads an internal partition.

Whoever coordinates knows what its partition tells, and reads all of it when it begins. A copy may
turn out to have a hole then, and what was in the hole was promised to somebody: that a message is
done with, that a producer was replaced. So whoever finds one takes no office while there is, or has
to be, another node that can lead and may have it all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.replication.clustering import Clustering
from goqueue.broker.topics.topics import Topic
from goqueue.loop.clock import Scheduler
from goqueue.partition import Partition

RETRY_MS = 500  # how soon to see whether nobody but this node is left after all

_log = logging.getLogger(__name__)


class Offices:
    """Has coordinators begin and end with the leadership of their partitions."""

    def __init__(
        self,
        scheduler: Scheduler,
        cluster: Clustering,
        changed: Callable[[Topic, Partition, bool], None],
    ) -> None:
        """`changed` has whoever coordinates by a partition begin, when it is led here, or end.

        It may be told twice in a row to end.
        """
        self._scheduler = scheduler
        self._cluster = cluster
        self._changed = changed

    def role_changed(self, topic: Topic, partition: Partition, leads: bool) -> None:
        self._changed(topic, partition, leads)
        if leads and self._cluster.doubts.is_unfit(topic.id, partition.name.partition):
            # Nobody has been answered yet, for all of this happens in one turn.
            _log.error("%s has a hole here; another node is to coordinate by it", partition.name)
            self._changed(topic, partition, False)
            again = partial(self._begin_again, topic, partition, partition.leader_epoch)
            self._scheduler.call_later(RETRY_MS, again)

    def _begin_again(self, topic: Topic, partition: Partition, epoch: int) -> None:
        """Nobody has taken over: try again, and coordinate with what there is if nobody can."""
        is_led = self._cluster.replicas.leads(topic.id, partition.name.partition)
        if is_led and partition.leader_epoch == epoch:
            self.role_changed(topic, partition, True)
