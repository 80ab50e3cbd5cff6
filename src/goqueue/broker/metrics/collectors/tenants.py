"""What tenants have on this node, each node its own part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from goqueue.broker.queues.groups import QueueGroups
from goqueue.broker.quotas.quotas import Quotas
from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.schedules.schedules import Schedules
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topics
from goqueue.metrics import Metric, Samples
from goqueue.metrics import catalogue as c
from goqueue.model.quotas import TENANT
from goqueue.model.tenants import tenant_of


class QuotaCollector:
    """What tenants use of their quotas."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def collect(self, samples: Samples) -> Iterator[None]:
        if not samples.wants(c.QUOTA_USED) or not self._quotas.is_active:
            return
        for one in self._quotas.usage():
            if len(one.key.entity) == 1 and one.key.entity[0][0] == TENANT:
                labels = one.key.entity[0][1], one.key.limit
                samples.maximum(c.QUOTA_LIMIT, one.limit, *labels)
                samples.add(c.QUOTA_USED, one.used, *labels)
            yield


class TenantCollector:
    """Storage, topics, groups and messages by tenant; nothing while there are no tenants."""

    def __init__(
        self,
        topics: Topics,
        leaders: Leaders,
        groups: Groups,
        queue_groups: QueueGroups,
        schedules: Schedules,
        *,
        is_controller: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._leaders = leaders
        self._groups = groups
        self._queue_groups = queue_groups
        self._schedules = schedules
        self._is_controller = is_controller

    def collect(self, samples: Samples) -> Iterator[None]:
        tenants = list(self._topics.facts.log.metadata.tenants)
        if not tenants or not samples.wants(c.TENANT_STORAGE):
            return
        is_controller = self._is_controller()
        for tenant in tenants:
            self._begin(samples, tenant, is_controller=is_controller)
            yield
        for topic in self._topics:
            tenant = tenant_of(topic.name)
            if tenant and is_controller:
                samples.add(c.TENANT_TOPICS, 1, tenant)
            for partition in topic.partitions if tenant else ():
                if not partition.is_following and self._leaders.is_here(
                    topic, partition.name.partition
                ):
                    samples.add(c.TENANT_PARTITIONS, 1, tenant)
                    samples.add(c.TENANT_STORAGE, partition.log.size, tenant)
                yield
        yield from self._add_groups(samples, is_controller=is_controller)
        yield from _add(samples, c.TENANT_SCHEDULED, self._schedules.counts_here().items())
        yield from _add(samples, c.TENANT_IN_FLIGHT, self._queue_groups.leased_here().items())

    def _begin(self, samples: Samples, tenant: str, *, is_controller: bool) -> None:
        for metric in (
            c.TENANT_STORAGE,
            c.TENANT_PARTITIONS,
            c.TENANT_GROUPS,
            c.TENANT_SCHEDULED,
            c.TENANT_IN_FLIGHT,
        ):
            samples.set(metric, 0, tenant)
        if is_controller:
            samples.set(c.TENANT_TOPICS, 0, tenant)

    def _add_groups(self, samples: Samples, *, is_controller: bool) -> Iterator[None]:
        """Count stream groups at their coordinators, and queue groups, which all nodes know."""
        for shard in list(self._groups.shards):
            names = [(one.group_id, 1) for one in shard.machine.groups()]
            yield from _add(samples, c.TENANT_GROUPS, names)
        if is_controller:
            known = [(name, 1) for name in self._topics.facts.queue_groups()]
            yield from _add(samples, c.TENANT_GROUPS, known)


def _add(samples: Samples, metric: Metric, counts: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Add counts to those of the tenants whose names they have."""
    for name, count in counts:
        tenant = tenant_of(name)
        if tenant:
            samples.add(metric, count, tenant)
        yield
