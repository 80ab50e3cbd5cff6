"""What tenants have on this node, for quotas that limit how many there may be.

Each node counts its own part: partitions that it leads, groups that it coordinates, messages that
it leases or keeps until they are due. Queue groups are metadata, which all nodes have; the active
controller counts those.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.quotas.meters import CountLimit
from goqueue.broker.schedules.schedules import Schedules
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topics
from goqueue.model.quotas import GROUPS, IN_FLIGHT, SCHEDULED, STORAGE_BYTES, TRANSACTIONAL_IDS
from goqueue.model.tenants import tenant_of


class Counting:
    """Measures what tenants have here."""

    def __init__(
        self,
        topics: Topics,
        groups: Groups,
        queue_groups: QueueGroups,
        schedules: Schedules,
        *,
        transactional_ids: Callable[[str], int],
        is_controller: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._queue_groups = queue_groups
        self._schedules = schedules
        self._is_controller = is_controller
        self._measures: dict[str, Callable[[str], int]] = {
            STORAGE_BYTES: self._storage,
            GROUPS: self._all_groups,
            SCHEDULED: self._scheduled,
            IN_FLIGHT: self._in_flight,
            TRANSACTIONAL_IDS: transactional_ids,
        }

    def measure(self, count: CountLimit) -> None:
        """Count again, unless it is counted as it changes."""
        measure = self._measures.get(count.key.limit)
        if measure is not None:
            [(_, tenant)] = count.key.entity
            count.here = measure(tenant)

    def _storage(self, tenant: str) -> int:
        scheduled = sum(
            size
            for topic, size in self._schedules.sizes_here().items()
            if tenant_of(topic) == tenant
        )
        return scheduled + sum(
            partition.log.size
            for topic in self._topics
            if not topic.is_internal and tenant_of(topic.name) == tenant
            for partition in topic.partitions
            if not partition.is_following
        )

    def _all_groups(self, tenant: str) -> int:
        streams = sum(tenant_of(one.group_id) == tenant for one in self._groups.all())
        if not self._is_controller():
            return streams
        known = self._topics.facts.queue_groups()
        return streams + sum(tenant_of(name) == tenant for name in known)

    def _scheduled(self, tenant: str) -> int:
        return sum(
            count
            for topic, count in self._schedules.counts_here().items()
            if tenant_of(topic) == tenant
        )

    def _in_flight(self, tenant: str) -> int:
        return sum(
            count
            for group, count in self._queue_groups.leased_here().items()
            if tenant_of(group) == tenant
        )
