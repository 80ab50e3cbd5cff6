"""Deletes tenants with all that they have.

A tenant in the state `deleting` is the job: it is in the metadata, so whichever node is the
controller continues it, also after a restart. Every step can be repeated.

A node that was the controller may notice late that another one has finished, and that there is a
new tenant of the same name. So before each deletion it catches up with the metadata, and ends if
the job is no longer its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from goqueue.loop.promise import start
from goqueue.model.errors import GoQueueError, NotController
from goqueue.model.session import INTERNAL
from goqueue.model.tenants import TenantState, prefix_of_tenant
from goqueue.schemas.names import read_subject

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.gate.gate import Gate
    from goqueue.cluster.identity_facts import TenantFact

RETRY_MS = 1_000
PAGE = 1_000  # of schedules and subjects that one step deletes

_log = logging.getLogger(__name__)


class TenantPurges:
    """Carries out the deletion of tenants, on the node that is the controller."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate
        self._working: set[str] = set()
        self._is_waiting = False
        self._is_stopped = False

    def resume(self) -> None:
        """Start what is to be done here; called when tenants change, and while there is any."""
        deleting = [
            one for one in self._broker.tenants.all.values() if one.state is TenantState.DELETING
        ]
        if self._is_stopped or not deleting:
            return
        if self._broker.controller_id == self._broker.node_id:
            for tenant in deleting:
                if tenant.name not in self._working:
                    self._working.add(tenant.name)
                    start(self._purge(tenant), partial(self._rested, tenant.name))
        self._wait()

    def stop(self) -> None:
        self._is_stopped = True

    def _wait(self) -> None:
        """Look again later: the controller may change, or a step may have to be repeated."""
        if not self._is_waiting:
            self._is_waiting = True
            self._broker.clock.call_later(RETRY_MS, self._look_again)

    def _look_again(self) -> None:
        self._is_waiting = False
        self.resume()

    def _rested(self, tenant: str, _: None, error: Exception | None) -> None:
        self._working.discard(tenant)
        if error is None or self._is_stopped:
            return
        if not isinstance(error, GoQueueError):
            raise error
        _log.info("the deletion of tenant %s must retry: %s", tenant, error)

    async def _purge(self, tenant: TenantFact) -> None:
        await _Purge(self._broker, self._gate, tenant, lambda: self._is_stopped).run()
        _log.info("tenant %s is deleted", tenant.name)


class _Purge:
    """Deletes all that a tenant has, and the tenant; ends early if that is not its job any more."""

    def __init__(
        self, broker: Broker, gate: Gate, tenant: TenantFact, is_stopped: Callable[[], bool]
    ) -> None:
        self._broker = broker
        self._gate = gate
        self._tenant = tenant
        self._prefix = prefix_of_tenant(tenant.name)
        self._is_stopped = is_stopped

    async def run(self) -> None:
        for step in (
            self._delete_users,
            self._cancel_schedules,
            self._delete_queues,
            self._delete_groups,
            self._delete_topics,
            self._delete_subjects,
            self._delete_settings,
        ):
            await step()
        await self._confirm()
        await self._broker.tenants.delete(self._tenant.name)

    async def _confirm(self) -> None:
        """Raise unless this very tenant is still to be deleted, by this node."""
        broker = self._broker
        if broker.groups.catch_up is not None:  # in a cluster
            await broker.groups.catch_up()
        is_same = broker.tenants.all.get(self._tenant.name) == self._tenant
        if not is_same or broker.controller_id != broker.node_id or self._is_stopped():
            raise NotController(broker.controller_id)

    # Steps

    async def _delete_users(self) -> None:
        identities, tenant = self._broker.identities, self._tenant.name
        for user in [one for one in identities.users.values() if one.tenant == tenant]:
            await identities.delete_user(user.name, purged=tenant)

    async def _delete_queues(self) -> None:
        queues = self._broker.named_queues
        for queue in [one for one in queues.all() if one.name.startswith(self._prefix)]:
            await self._confirm()
            await queues.delete(queue.name)

    async def _delete_groups(self) -> None:
        groups = self._gate.groups
        for group in await groups.list(INTERNAL, prefix=self._prefix):
            await self._confirm()
            await groups.delete(INTERNAL, group=group.name)

    async def _delete_topics(self) -> None:
        topics = self._broker.topics
        for topic in _beginning(self._prefix, (one.name for one in topics)):
            await self._confirm()
            await topics.delete(topic)

    async def _cancel_schedules(self) -> None:
        schedules = self._broker.schedules
        names = frozenset(_beginning(self._prefix, (one.name for one in self._broker.topics)))
        while names:
            page = await schedules.list(topics=names, limit=PAGE)
            await self._confirm()
            outcomes = await schedules.cancel_many([one.id for one in page.entries])
            if all(outcomes):
                return  # None is left, or they are just being released.

    async def _delete_subjects(self) -> None:
        """Delete subjects; those that others refer to follow when the others are gone."""
        schemas, left = self._gate.schemas, -1
        while True:
            found = await schemas.list_subjects(
                INTERNAL,
                prefix=f":.{self._prefix}",
                with_deleted=True,
                only_deleted=False,
                offset=0,
                limit=PAGE,
            )
            if not found:
                return
            refused: GoQueueError | None = None
            for name in found:
                refused = await self._delete_subject(name) or refused
            if len(found) == left and refused is not None:
                raise refused
            left = len(found)

    async def _delete_subject(self, name: str) -> GoQueueError | None:
        subject, refused = read_subject(name), None
        for is_permanent in (False, True):
            await self._confirm()
            try:
                await self._gate.schemas.delete_subject(
                    INTERNAL, subject=subject, permanent=is_permanent
                )
            except GoQueueError as error:
                refused = error  # The first is refused if it was done before.
            else:
                refused = None
        return refused

    async def _delete_settings(self) -> None:
        configs, schemas = self._gate.configs, self._gate.schemas
        for group in _beginning(self._prefix, configs.groups(INTERNAL)):
            await self._confirm()
            await configs.change_group(INTERNAL, group=group, changes=[], is_whole=True)
        with_config, with_mode = await self._broker.schemas.look(
            lambda registry: registry.scopes.names_within(f":.{self._prefix}")
        )
        for name in with_config:
            await self._confirm()
            await schemas.delete_config(INTERNAL, subject=read_subject(name))
        for name in with_mode:
            await self._confirm()
            await schemas.delete_mode(INTERNAL, subject=read_subject(name), recursive=False)


def _beginning(prefix: str, names: Iterable[str]) -> list[str]:
    return [one for one in names if one.startswith(prefix)]
