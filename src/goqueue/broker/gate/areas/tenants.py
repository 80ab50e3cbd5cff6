"""Operations on tenants, for operators; and what the users of a tenant may know of it."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

import msgspec

from goqueue.broker.gate.namespaces import inside
from goqueue.broker.gate.operation import (
    OPERATIONS,
    Area,
    Arguments,
    cluster,
    everybody,
    operation,
    own_cluster,
    query,
)
from goqueue.broker.identities.identities import check_user_name
from goqueue.cluster.identity_facts import TenantFact
from goqueue.loop.promise import Promise
from goqueue.model.access import (
    ANY_HOST,
    ANY_RESOURCE,
    CLUSTER,
    Acl,
    Action,
    PatternKind,
    Permission,
    ResourceKind,
)
from goqueue.model.errors import TenantInUse
from goqueue.model.session import Session, principal_of
from goqueue.model.tenants import TenantState, Text, prefix_of, prefix_of_tenant
from goqueue.tenancy.namespaces import Namespace

__all__ = ["TenantPage", "TenantState", "TenantUsage", "TenantView", "TenantsArea"]


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant."""

    name: Text
    account: Text  # in the URLs of its queues
    state: TenantState
    description: Text
    created_ms: int
    user_count: int
    topic_count: int


class TenantPage(msgspec.Struct, frozen=True):
    """Tenants by name; `next_cursor` is empty at the end."""

    tenants: tuple[TenantView, ...]
    next_cursor: Text


class TenantUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant has. Bytes are those of the leaders, so that replicas do not count."""

    users: int = 0
    topics: int = 0
    partitions: int = 0
    queues: int = 0
    groups: int = 0
    subjects: int = 0
    scheduled: int = 0
    stored_bytes: int = 0


class NodePart(msgspec.Struct, frozen=True):
    """What only the node that leads a partition, or coordinates a group, can count."""

    stored_bytes: int
    stream_groups: int


def _summed(_: Arguments, parts: Sequence[NodePart]) -> NodePart:
    return NodePart(sum(one.stored_bytes for one in parts), sum(one.stream_groups for one in parts))


class TenantsArea(Area):
    """Tenants: create, list, show, suspend, activate, delete, and their usage."""

    @query(Action.DESCRIBE, cluster)
    def list(self, session: Session, *, after: Text, limit: int) -> TenantPage:
        """Return tenants by name, after a cursor."""
        known = self._broker.tenants.all
        names = nsmallest(limit + 1, (name for name in known if name > after))
        shown = tuple(self._view(known[name]) for name in names[:limit])
        return TenantPage(shown, shown[-1].name if len(names) > limit else "")

    @query(Action.DESCRIBE, cluster)
    def show(self, session: Session, *, tenant: Text) -> TenantView:
        """Return a tenant."""
        return self._view(self._broker.tenants.get(tenant))

    @operation(Action.ALTER, cluster)
    async def create(
        self, session: Session, *, tenant: Text, description: Text = "", admin: Text | None = None
    ) -> TenantView:
        """Create a tenant. A user `admin`, which is created there later, may do everything in it.

        Names that begin like those of the tenant must not exist: groups and transactional ids
        could have any name before there were tenants.
        """
        if admin is not None:
            check_user_name(admin)
        prefix = prefix_of_tenant(tenant)
        groups = await self._answer(session, "groups.list", prefix=prefix)
        transactions = await self._answer(session, "transactions.list", prefix=prefix, limit=1)
        if groups or transactions.total:
            raise TenantInUse(tenant, f"there are groups or transactions that begin with {prefix}")
        made = await self._broker.tenants.create(tenant, description)
        if admin is not None:
            await self._broker.access.add(_rules_of_admin(tenant, admin))
        return self._view(made)

    @operation(Action.ALTER, cluster)
    async def set_state(self, session: Session, *, tenant: Text, state: TenantState) -> TenantView:
        """Activate a tenant, let it only read, or suspend it."""
        if state is TenantState.DELETING:
            raise TenantInUse(tenant, "delete it, rather than set that state")
        return self._view(await self._broker.tenants.change(tenant, state=state))

    @operation(Action.ALTER, cluster)
    async def delete(self, session: Session, *, tenant: Text, purge: bool = False) -> None:
        """Delete a tenant without users and resources or, with `purge`, all of it.

        A purge goes on in the background, and after a restart; the tenant is gone at its end.
        """
        tenants = self._broker.tenants
        if tenants.get(tenant).state is TenantState.DELETING:
            return
        if not purge:
            await self._check_unused(session, tenant)
        await tenants.change(tenant, state=TenantState.DELETING)

    async def _check_unused(self, session: Session, tenant: str) -> None:
        self._broker.tenants.check_unused(tenant)
        usage = await self._usage(session, tenant)
        left = [f"{getattr(usage, one)} {one}" for one in ("groups", "subjects", "scheduled")]
        used = [one for one in left if not one.startswith("0 ")]
        if used:
            raise TenantInUse(
                tenant, f"it has {', '.join(used)}; delete them first, or purge the tenant"
            )

    # Usage

    @operation(Action.DESCRIBE, cluster, is_reading=True)
    async def usage(self, session: Session, *, tenant: Text) -> TenantUsage:
        """Return what a tenant has."""
        self._broker.tenants.get(tenant)
        return await self._usage(session, tenant)

    @operation(Action.DESCRIBE, own_cluster, is_reading=True)
    async def own_usage(self, session: Session) -> TenantUsage:
        """Return what the session's tenant has."""
        return await self._usage(session, session.tenant)

    @operation(Action.DESCRIBE, cluster, merge=_summed, is_reading=True)
    async def usage_of_nodes(self, session: Session, *, tenant: Text) -> NodePart:
        """Count what only leaders and coordinators know, on all nodes."""
        prefix = prefix_of_tenant(tenant)
        broker = self._broker
        stored = sum(
            partition.log.size
            for topic in broker.topics
            if not topic.is_internal and _is_of(topic.name, prefix)
            for number, partition in enumerate(topic.partitions)
            if broker.leaders.is_here(topic, number)
        )
        groups = broker.groups.all(frozenset(), frozenset())
        return NodePart(stored, sum(_is_of(one.group_id, prefix) for one in groups))

    async def _usage(self, session: Session, tenant: str) -> TenantUsage:
        broker, prefix = self._broker, prefix_of_tenant(tenant)
        part: NodePart = await self._answer(session, "tenants.usage_of_nodes", tenant=tenant)
        topics = [one for one in broker.topics if not one.is_internal and _is_of(one.name, prefix)]
        subjects = await broker.schemas.look(
            lambda registry: [
                one
                for one in registry.catalog.subjects()
                if _is_of(one.context[1:], prefix) and registry.has_subject(one, with_deleted=True)
            ]
        )
        names = frozenset(one.name for one in topics)
        scheduled = await broker.schedules.count(topics=names) if names else 0
        queue_groups = sum(_is_of(one.name, prefix) for one in broker.queues.groups.all())
        return TenantUsage(
            users=sum(one.tenant == tenant for one in broker.identities.users.values()),
            topics=len(topics),
            partitions=sum(one.partition_count for one in topics),
            queues=sum(_is_of(one.name, prefix) for one in broker.named_queues.all()),
            groups=part.stream_groups + queue_groups,
            subjects=len(subjects),
            scheduled=scheduled,
            stored_bytes=part.stored_bytes,
        )

    # For everybody

    @query(Action.DESCRIBE, everybody)
    def account(self, session: Session) -> Text:
        """Return the account of a session's tenant; empty for the default one."""
        if not session.tenant:
            return ""
        return self._broker.tenants.get(session.tenant).account

    def _view(self, fact: TenantFact) -> TenantView:
        prefix = prefix_of_tenant(fact.name)
        users = self._broker.identities.users.values()
        return TenantView(
            name=fact.name,
            account=fact.account,
            state=fact.state,
            description=fact.description,
            created_ms=fact.created_ms,
            user_count=sum(one.tenant == fact.name for one in users),
            topic_count=sum(one.name.startswith(prefix) for one in self._broker.topics),
        )

    def _answer(self, session: Session, name: str, **arguments: object) -> Promise[Any]:
        """Have another operation answer, as a part of this one."""
        declared = OPERATIONS[name]
        area = self._dispatcher.areas[name.partition(".")[0]]
        return self._dispatcher.answer(inside(session), declared, area, arguments)


def _is_of(name: str, prefix: str) -> bool:
    """Whether a name belongs to the tenant with a prefix."""
    return prefix_of(name) == prefix


def _rules_of_admin(tenant: str, user: str) -> Sequence[Acl]:
    """Return rules by which a user may do everything in a tenant."""
    space = Namespace(tenant, str)
    return [
        space.rule(
            Acl(
                kind,
                PatternKind.LITERAL,
                CLUSTER.name if kind is ResourceKind.CLUSTER else ANY_RESOURCE,
                principal_of(user),
                ANY_HOST,
                Action.ALL,
                Permission.ALLOW,
            )
        )
        for kind in ResourceKind
    ]
