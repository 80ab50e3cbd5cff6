"""Deletes tenants with all that they have.

A tenant in the state `deleting` is the job: it is in the metadata, so whichever node is the
controller continues it, also after a restart. Every step can be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from goqueue.loop.promise import start
from goqueue.model.errors import GoQueueError
from goqueue.model.session import INTERNAL
from goqueue.model.tenants import TenantState, prefix_of_tenant
from goqueue.schemas.names import read_subject

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.broker.gate.gate import Gate

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
            one.name
            for one in self._broker.tenants.all.values()
            if one.state is TenantState.DELETING
        ]
        if self._is_stopped or not deleting:
            return
        if self._broker.controller_id == self._broker.node_id:
            for tenant in deleting:
                if tenant not in self._working:
                    self._working.add(tenant)
                    start(self._purge(tenant), partial(self._rested, tenant))
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

    # Steps

    async def _purge(self, tenant: str) -> None:
        prefix = prefix_of_tenant(tenant)
        steps: list[Callable[[str], Awaitable[None]]] = [
            self._delete_users,
            self._cancel_schedules,
            self._delete_queues,
            self._delete_groups,
            self._delete_topics,
            self._delete_subjects,
            self._delete_settings,
        ]
        for step in steps:
            await step(prefix)
            if self._is_stopped:
                return
        await self._broker.tenants.delete(tenant)
        _log.info("tenant %s is deleted", tenant)

    async def _delete_users(self, prefix: str) -> None:
        identities = self._broker.identities
        for user in [one for one in identities.users.values() if one.tenant == prefix[1:-1]]:
            await identities.delete_user(user.name)

    async def _delete_queues(self, prefix: str) -> None:
        queues = self._broker.named_queues
        for queue in [one for one in queues.all() if one.name.startswith(prefix)]:
            await queues.delete(queue.name)

    async def _delete_groups(self, prefix: str) -> None:
        groups = self._gate.groups
        for group in await groups.list(INTERNAL, prefix=prefix):
            await groups.delete(INTERNAL, group=group.name)

    async def _delete_topics(self, prefix: str) -> None:
        topics = self._broker.topics
        for topic in _beginning(prefix, (one.name for one in topics)):
            await topics.delete(topic)

    async def _cancel_schedules(self, prefix: str) -> None:
        schedules = self._broker.schedules
        names = frozenset(_beginning(prefix, (one.name for one in self._broker.topics)))
        while names:
            page = await schedules.list(topics=names, limit=PAGE)
            outcomes = await schedules.cancel_many([one.id for one in page.entries])
            if all(outcomes):
                return  # None is left, or they are just being released.

    async def _delete_subjects(self, prefix: str) -> None:
        """Delete subjects; those that others refer to follow when the others are gone."""
        schemas, left = self._gate.schemas, -1
        while True:
            found = await schemas.list_subjects(
                INTERNAL,
                prefix=f":.{prefix}",
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
            try:
                await self._gate.schemas.delete_subject(
                    INTERNAL, subject=subject, permanent=is_permanent
                )
            except GoQueueError as error:
                refused = error  # The first is refused if it was done before.
            else:
                refused = None
        return refused

    async def _delete_settings(self, prefix: str) -> None:
        configs, schemas = self._gate.configs, self._gate.schemas
        for group in _beginning(prefix, configs.groups(INTERNAL)):
            await configs.change_group(INTERNAL, group=group, changes=[], is_whole=True)
        with_config, with_mode = await self._broker.schemas.look(
            lambda registry: registry.scopes.names_within(f":.{prefix}")
        )
        for name in with_config:
            await schemas.delete_config(INTERNAL, subject=read_subject(name))
        for name in with_mode:
            await schemas.delete_mode(INTERNAL, subject=read_subject(name), recursive=False)


def _beginning(prefix: str, names: Iterable[str]) -> list[str]:
    return [one for one in names if one.startswith(prefix)]
