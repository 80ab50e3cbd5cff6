"""Creates what answers scrapes of a node, and other nodes that ask for the lag of their groups.

`measuring` loads it at first use, because a node that nobody scrapes does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.metrics.calls import collector_of_audit
from goqueue.broker.metrics.collectors.cluster import ClusterCollector, NodeCollector, Who
from goqueue.broker.metrics.collectors.partitions import PartitionCollector, Space
from goqueue.broker.metrics.collectors.queues import QueueCollector
from goqueue.broker.metrics.collectors.rooms import (
    JourneyCollector,
    ScheduleCollector,
    SchemaCollector,
    ShareGroupCollector,
    TransactionCollector,
)
from goqueue.broker.metrics.collectors.tenants import QuotaCollector, TenantCollector
from goqueue.broker.metrics.forgetting import DeletedTopics
from goqueue.broker.metrics.lag import GroupLag, RecordTimes
from goqueue.broker.metrics.scrape import Scraper
from goqueue.metrics import Samples
from goqueue.metrics import catalogue as c
from goqueue.storage.disk import Disk

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker


def create_lag(broker: Broker, disk: Disk) -> GroupLag:
    """Create what knows how far groups are behind."""
    return GroupLag(
        broker.clock,
        broker.topics,
        broker.leaders,
        broker.groups,
        RecordTimes(broker.clock, disk, broker.topics),
        broker.metrics,
        peers=broker.peers,
    )


def create_scraper(broker: Broker, lag: GroupLag, *, started_ms: int) -> Scraper:
    """Register the collectors, and return what answers scrapes."""
    clock, topics, leaders = broker.clock, broker.topics, broker.leaders
    cluster, registry = broker.cluster, broker.metrics
    queue_groups, schedules = broker.queues.groups, broker.schedules
    rack = broker.settings.cluster.rack
    who = Who(broker.node_id, lambda: broker.cluster_id, rack, started_ms)
    space = Space(broker.free_bytes, broker.total_bytes, lambda: broker.upkeep.is_full)
    tenants = TenantCollector(
        topics,
        leaders,
        broker.groups,
        queue_groups,
        schedules,
        is_controller=lambda: cluster is None or cluster.quorum.is_controller,
    )
    registry.collect(DeletedTopics(clock, topics, registry).collect)
    registry.collect(NodeCollector(who, cluster).collect)
    registry.collect(PartitionCollector(clock, topics, leaders, cluster, space).collect)
    registry.collect(lag.collect)
    registry.collect(QueueCollector(clock, queue_groups).collect)
    registry.collect(ShareGroupCollector(broker.share_members.counts).collect)
    registry.collect(ScheduleCollector(schedules, registry).collect)
    registry.collect(TransactionCollector(clock, broker.transactions).collect)
    registry.collect(SchemaCollector(broker.schemas, broker.node_id).collect)
    registry.collect(tenants.collect)
    registry.collect(QuotaCollector(broker.quotas).collect)
    if broker.journeys is not None:
        registry.collect(JourneyCollector(clock, broker.journeys).collect)
    if broker.audit is not None:
        registry.collect(collector_of_audit(broker.audit))
    if cluster is not None:
        registry.collect(ClusterCollector(cluster).collect)

    async def prepare(samples: Samples) -> None:
        if samples.wants(c.GROUP_LAG_MESSAGES) or samples.wants(c.GROUP_PARTITION_LAG_MESSAGES):
            await lag.refresh()

    return Scraper(clock, registry, prepare)
