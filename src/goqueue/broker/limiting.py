"""Connects quotas with what they limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.quotas.counting import Counting
from goqueue.broker.quotas.sharing import QuotaSharing

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker


def limit_use(broker: Broker) -> None:
    """Have quotas count what tenants have, and be checked where that is decided."""
    cluster, quotas = broker.cluster, broker.quotas
    quotas.measure = Counting(
        broker.topics,
        broker.groups,
        broker.queues.groups,
        broker.schedules,
        transactional_ids=broker.transactions.count_of,
        is_controller=lambda: cluster is None or cluster.quorum.is_controller,
    ).measure
    broker.transactions.check_quota = quotas.check_transactional_ids
    broker.schemas.check_quota = quotas.check_room
    broker.redrives.charge = broker.named_queue_moves.charge = quotas.charge_job
    if cluster is not None and broker.peers is not None:
        QuotaSharing(broker.clock, quotas, cluster, broker.peers)

    def check() -> None:
        has_counts = quotas.table.has_tenants
        broker.groups.check_quota = quotas.check_groups if has_counts else None
        broker.queues.groups.check_quota = quotas.check_groups if has_counts else None
        broker.schedules.check_quota = quotas.check_scheduled if has_counts else None

    quotas.on_change(check)
    check()
