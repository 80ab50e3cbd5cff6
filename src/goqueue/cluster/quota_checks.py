"""Quotas of tenants on topics and partitions, which the metadata can count exactly."""

from __future__ import annotations

from goqueue.cluster.identity_facts import quota_key
from goqueue.cluster.metadata import Metadata
from goqueue.model.errors import QuotaReached
from goqueue.model.names import INTERNAL_TOPICS
from goqueue.model.quotas import DEFAULT_NAME, PARTITIONS, TOPICS, tenant_entity
from goqueue.model.tenants import tenant_of


def check_room(metadata: Metadata, name: str, *, topics: int, partitions: int) -> None:
    """Raise unless the tenant of a topic may have so many more topics and partitions."""
    if not metadata.quotas or name in INTERNAL_TOPICS:
        return
    tenant = tenant_of(name)
    known = [
        one
        for one in metadata.topics()
        if one.name not in INTERNAL_TOPICS and tenant_of(one.name) == tenant
    ]
    _check(metadata, tenant, TOPICS, len(known) + topics)
    _check(metadata, tenant, PARTITIONS, sum(one.partition_count for one in known) + partitions)


def _check(metadata: Metadata, tenant: str, limit: str, wanted: int) -> None:
    for name in (tenant, DEFAULT_NAME):
        quota = metadata.quotas.get(quota_key(tenant_entity(name)))
        most = None if quota is None else quota.limits.get(limit)
        if most is not None:
            if wanted > most:
                raise QuotaReached(limit, int(most))
            return
