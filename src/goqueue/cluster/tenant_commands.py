"""Commands that change tenants, and the rules for what belongs to one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from goqueue.cluster.facts import Decision, Forget
from goqueue.cluster.identity_facts import TenantFact
from goqueue.cluster.metadata import Metadata
from goqueue.model.bounds import Name
from goqueue.model.errors import (
    InvalidTopicName,
    LimitReached,
    StalePartitionVersion,
    TenantExists,
    TenantInUse,
    UnknownTenant,
)
from goqueue.model.names import INTERNAL_TOPICS, TOPIC_NAME_LENGTH_MAX, check_topic_name
from goqueue.model.tenants import TenantState, plain_name, prefix_of_tenant, scope_of, tenant_of

TENANTS_MAX = 10_000
ACCOUNT_DIGITS = 12

_Decided = tuple[Decision, None]


class PutTenant(msgspec.Struct, frozen=True, tag="put_tenant"):
    """Create a tenant, whose version is 1, or replace one, with the version that follows."""

    fact: TenantFact

    def decide(self, metadata: Metadata) -> _Decided:
        fact, known = self.fact, metadata.tenants.get(self.fact.name)
        if known == fact:
            return (), None  # A retry: the answer to the first request was lost.
        if known is None and fact.version > 1:
            raise UnknownTenant(fact.name)
        if known is not None and fact.version == 1:
            raise TenantExists(fact.name)
        if known is not None and fact.version != known.version + 1:
            raise StalePartitionVersion(f"Tenant {fact.name!r} was changed by another request.")
        if known is None and len(metadata.tenants) >= TENANTS_MAX:
            raise LimitReached(
                f"There are {TENANTS_MAX} tenants, which is the limit; delete some first."
            )
        if known is None and fact.account in accounts(metadata):
            raise TenantExists(fact.name)
        return (fact,), None


class DeleteTenant(msgspec.Struct, frozen=True, tag="delete_tenant"):
    """Delete a tenant in the state `deleting` without users and, in the metadata, resources."""

    name: Name

    def decide(self, metadata: Metadata) -> _Decided:
        known = metadata.tenants.get(self.name)
        if known is None or not is_purged(metadata, self.name):
            return (), None  # Another node has deleted it; there may be a new one of the name.
        reason = in_use(metadata, self.name)
        if reason:
            raise TenantInUse(self.name, reason)
        prefix = prefix_of_tenant(self.name)
        rules = [
            one.key
            for one in metadata.acls.values()
            if scope_of(one.value.name) in (prefix, f":.{prefix}")
        ]
        roles = [one.key for one in metadata.roles.values() if one.name.startswith(prefix)]
        entity = ("tenant", self.name)
        quotas = [one.key for one in metadata.quotas.values() if entity in one.entity]
        return tuple(Forget(key) for key in (known.key, *rules, *roles, *quotas)), None


TenantCommand = PutTenant | DeleteTenant


def is_purged(metadata: Metadata, tenant: str) -> bool:
    """Whether a tenant is being deleted."""
    known = metadata.tenants.get(tenant)
    return known is not None and known.state is TenantState.DELETING


def in_use(metadata: Metadata, tenant: str) -> str:
    """Return why a tenant cannot be deleted yet; empty if it can."""
    prefix = prefix_of_tenant(tenant)
    users = sum(one.tenant == tenant for one in metadata.users.values())
    topics = sum(one.name.startswith(prefix) for one in metadata.topics())
    queues = sum(name.startswith(prefix) for name in metadata.named_queues)
    groups = sum(name.startswith(prefix) for name in metadata.queue_groups)
    counts = {"users": users, "topics": topics, "queues": queues, "queue groups": groups}
    found = [f"{count} {what}" for what, count in counts.items() if count]
    return f"it has {', '.join(found)}" if found else ""


def accounts(metadata: Metadata) -> set[str]:
    return {one.account for one in metadata.tenants.values()}


def new_account(tenant: str, taken: Iterable[str]) -> str:
    """Return an account number for a tenant: derived from its name, and not in use."""
    known, attempt = set(taken), 0
    while True:
        digest = hashlib.sha256(f"{attempt}/{tenant}".encode()).digest()
        number = int.from_bytes(digest[:8]) % 10**ACCOUNT_DIGITS
        account = f"{number:0{ACCOUNT_DIGITS}d}"
        if account not in known:
            return account
        attempt += 1


def check_tenant_is_active(metadata: Metadata, tenant: str) -> None:
    """Raise unless something new may belong to a tenant; the default tenant always exists."""
    known = metadata.tenants.get(tenant)
    if tenant and (known is None or known.state is TenantState.DELETING):
        raise UnknownTenant(tenant)


def check_new_topic_name(metadata: Metadata, name: str) -> None:
    """Raise unless a topic or a queue may have a name, in the tenant it belongs to."""
    tenant = tenant_of(name)
    if tenant not in metadata.tenants:
        check_topic_name(name)  # A prefix that is not that of a tenant is not valid.
        return
    check_tenant_is_active(metadata, tenant)
    plain = plain_name(name)
    check_topic_name(plain)
    if plain in INTERNAL_TOPICS:
        raise InvalidTopicName(name, "it is that of an internal topic")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        length_max = TOPIC_NAME_LENGTH_MAX - len(name) + len(plain)
        raise InvalidTopicName(name, f"it must have at most {length_max} characters")
