"""Quotas as state machines: which limits a client has, and the token buckets that hold rates.

A bucket holds the tokens of one second. A batch takes as many as it has bytes, into debt if there
are too few, and the next one waits until the debt is paid. So a batch larger than the bucket passes
too, and the rate is held: in any time at most the rate times that time, plus one second of it, plus
one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from goqueue.model.quotas import (
    CLIENT_ID,
    DEFAULT_NAME,
    IP,
    TENANT,
    USER,
    Entity,
    tenant_entity,
    tenant_limit,
)

MILLIONTHS = 1_000_000  # of a token: rates below one per second are whole numbers too
BURST_MS = 1_000
WAIT_MS_MAX = 3_600_000  # the longest wait that a client is given; debt beyond it stays


class Bucket:
    """The tokens of one limit of one entity, in whole millionths; negative while in debt."""

    __slots__ = (
        "_burst",
        "_level",
        "_per_ms",
        "_updated_ms",
        "is_short",
        "used",
        "used_ms",
        "wait_ms_max",
    )

    def __init__(self, rate: float, now_ms: int) -> None:
        self._per_ms = self._burst = 0
        self._set(rate)
        self._level = self._burst
        self._updated_ms = now_ms
        self.used = 0  # since it was last reported
        self.used_ms = now_ms  # when it was last used
        self.is_short = False  # it was in debt since it was last reported
        self.wait_ms_max = WAIT_MS_MAX

    def take(self, amount: int, now_ms: int) -> int:
        """Take tokens, into debt if there are too few; return how long to wait until it is paid."""
        if now_ms > self._updated_ms:
            self._refill(now_ms)
        self._level -= amount * MILLIONTHS
        self.used += amount
        self.used_ms = now_ms
        if self._level >= 0:
            return 0
        self.is_short = True
        return self._wait_ms()

    def wait_ms(self, now_ms: int) -> int:
        """Return how long to wait until there is no debt."""
        self._refill(now_ms)
        if self._level >= 0:
            return 0
        self.is_short = True
        return self._wait_ms()

    def _wait_ms(self) -> int:
        return min(-(self._level // self._per_ms), self.wait_ms_max)

    def left(self, now_ms: int) -> int:
        """Return how many tokens there are."""
        self._refill(now_ms)
        return max(0, self._level) // MILLIONTHS

    def is_full(self, now_ms: int) -> bool:
        """Whether nothing is lost if it is forgotten."""
        self._refill(now_ms)
        return self._level == self._burst

    def change_rate(self, rate: float, now_ms: int) -> None:
        """Use another rate from now on; debt stays."""
        self._refill(now_ms)
        self._set(rate)
        self._level = min(self._level, self._burst)

    @property
    def rate(self) -> float:
        return self._per_ms * 1_000 / MILLIONTHS

    def _set(self, rate: float) -> None:
        self._per_ms = max(1, round(rate * MILLIONTHS / 1_000))
        self._burst = self._per_ms * BURST_MS

    def _refill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._updated_ms
        if elapsed_ms > 0:
            self._level = min(self._burst, self._level + elapsed_ms * self._per_ms)
            self._updated_ms = now_ms


class BucketKey(NamedTuple):
    """One limit of one entity, with its own names: the default of users is a limit for each."""

    limit: str
    entity: Entity


class AppliedLimit(NamedTuple):
    """A limit that a client has."""

    key: BucketKey
    value: float
    source: Entity  # for which it was set


class QuotaTable:
    """All quotas, to find those of a client."""

    def __init__(self, entries: Iterable[tuple[Entity, Mapping[str, float]]] = ()) -> None:
        self._entries = dict(entries)
        forms = {tuple(kind for kind, _ in entity) for entity in self._entries}
        self.is_empty = not self._entries
        # Whether clients of one user with different ids may have different limits.
        self.uses_client_ids = any(CLIENT_ID in form for form in forms)
        self.has_ips = (IP,) in forms
        self.has_tenants = (TENANT,) in forms

    def get(self, entity: Entity) -> Mapping[str, float]:
        return self._entries.get(entity, {})

    def of_client(self, user: str, client_id: str, tenant: str) -> list[AppliedLimit]:
        """Return the limits of a client: for each name that of the most specific entity.

        Those of its tenant apply in addition.
        """
        found: dict[str, AppliedLimit] = {}
        for source, entity in _precedence(user, client_id):
            for name, value in self._entries.get(source, {}).items():
                if name not in found:
                    found[name] = AppliedLimit(BucketKey(name, entity), value, source)
        return [*found.values(), *self.of_tenant(tenant)]

    def of_tenant(self, tenant: str) -> list[AppliedLimit]:
        return self._of_one(TENANT, tenant)

    def of_ip(self, host: str) -> list[AppliedLimit]:
        return self._of_one(IP, host)

    def tenant_limit(self, tenant: str, limit: str) -> float | None:
        """Return a limit of a tenant: its own, the default, or its share of what all have."""
        return tenant_limit(self._entries.get, tenant, limit)

    def has_own_limit(self, tenant: str, limit: str) -> bool:
        """Whether a limit is set for a tenant, or by default."""
        return any(limit in self.get(tenant_entity(one)) for one in (tenant, DEFAULT_NAME))

    def _of_one(self, kind: str, name: str) -> list[AppliedLimit]:
        entity: Entity = ((kind, name),)
        found: dict[str, AppliedLimit] = {}
        for source in (entity, ((kind, DEFAULT_NAME),)):
            for limit, value in self._entries.get(source, {}).items():
                if limit not in found:
                    found[limit] = AppliedLimit(BucketKey(limit, entity), value, source)
        return list(found.values())


def _precedence(user: str, client_id: str) -> Iterable[tuple[Entity, Entity]]:
    """Yield the entities that may have limits of a client, as in Kafka, the most specific first.

    With each comes the entity that shares the limit: a default is a limit for each name.
    """
    both: Entity = ((CLIENT_ID, client_id), (USER, user))
    only_user: Entity = ((USER, user),)
    only_client: Entity = ((CLIENT_ID, client_id),)
    yield both, both
    yield ((CLIENT_ID, DEFAULT_NAME), (USER, user)), both
    yield only_user, only_user
    yield ((CLIENT_ID, client_id), (USER, DEFAULT_NAME)), both
    yield ((CLIENT_ID, DEFAULT_NAME), (USER, DEFAULT_NAME)), both
    yield ((USER, DEFAULT_NAME),), only_user
    yield only_client, only_client
    yield ((CLIENT_ID, DEFAULT_NAME),), only_client
