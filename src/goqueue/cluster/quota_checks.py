"""Quotas of tenants on what is in the metadata, which are exact."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.cluster.identity_facts import quota_key
from goqueue.cluster.metadata import Metadata
from goqueue.model.errors import QuotaReached
from goqueue.model.names import INTERNAL_TOPICS
from goqueue.model.quotas import PARTITIONS, TOPICS, Entity, tenant_limit
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


def check_identities(metadata: Metadata, limit: str, tenant: str, more: int = 1) -> None:
    """Raise unless a tenant may have so many more users, keys, rules or roles."""
    if more:
        _check(metadata, tenant, limit, metadata.identity_counts.get(limit, tenant) + more)


def _check(metadata: Metadata, tenant: str, limit: str, wanted: int) -> None:
    def limits_of(entity: Entity) -> Mapping[str, float] | None:
        quota = metadata.quotas.get(quota_key(entity))
        return None if quota is None else quota.limits

    most = tenant_limit(limits_of, tenant, limit)
    if most is not None and wanted > most:
        raise QuotaReached(limit, int(most))
