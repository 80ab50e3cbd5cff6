"""Operations on quotas: describe, alter, and how much of them is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from goqueue.broker.gate.operation import Area, Arguments, cluster, operation, query
from goqueue.broker.quotas.quotas import Usage
from goqueue.loop.promise import Promise
from goqueue.model.access import Action
from goqueue.model.errors import InvalidQuota
from goqueue.model.quotas import (
    DEFAULT_NAME,
    ENTITY_KINDS,
    Entity,
    check_limits,
    checked_entity,
)
from goqueue.model.session import Session
from goqueue.model.tenants import Text

__all__ = ["EntityFilter", "Match", "Quota", "QuotaUsage", "QuotasArea"]

Match = Literal["exact", "default", "any"]
Names = tuple[tuple[Text, Text], ...]  # of an entity, by their kinds


class EntityFilter(NamedTuple):
    """One kind of name that an entity must have: this one, the default, or any."""

    kind: Text
    match: Match = "any"
    name: Text = DEFAULT_NAME

    def includes(self, names: Mapping[str, str]) -> bool:
        found = names.get(self.kind)
        if found is None or self.match == "any":
            return found is not None
        return found == (self.name if self.match == "exact" else DEFAULT_NAME)


class Quota(NamedTuple):
    """The limits of an entity."""

    entity: Names
    limits: Mapping[Text, float]


class QuotaUsage(NamedTuple):
    """How much of a limit an entity uses, in the whole cluster."""

    limit_name: Text
    entity: Names
    limit: float
    used: float  # of the last second for a rate, as long as there is no debt
    wait_ms: int  # of new requests, at most


def _sum(_: Arguments, answers: Sequence[Sequence[QuotaUsage]]) -> Sequence[QuotaUsage]:
    """Add what the nodes have used of their shares."""
    total: dict[tuple[str, Entity], QuotaUsage] = {}
    for one in (one for answer in answers for one in answer):
        entity = tuple((kind, name) for kind, name in one.entity)
        key = (one.limit_name, entity)
        before = total.get(key)
        if before is None:
            total[key] = one._replace(entity=entity)
        else:
            total[key] = before._replace(
                used=before.used + one.used, wait_ms=max(before.wait_ms, one.wait_ms)
            )
    return [total[key] for key in sorted(total)]


class QuotasArea(Area):
    """Quotas: describe, alter, usage."""

    @query(Action.DESCRIBE_CONFIGS, cluster)
    def describe(
        self, session: Session, *, filters: Sequence[EntityFilter] = (), is_strict: bool = False
    ) -> list[Quota]:
        """Return the quotas whose entities match all filters and, if strict, have no other name."""
        _check_filters(filters)
        found = []
        for fact in self._broker.quotas.all():
            names = dict(fact.entity)
            is_wanted = all(one.includes(names) for one in filters)
            if is_wanted and (not is_strict or len(names) == len(filters)):
                found.append(Quota(fact.entity, fact.limits))
        return found

    @operation(Action.ALTER_CONFIGS, cluster)
    def alter(
        self,
        session: Session,
        *,
        names: Mapping[Text, Text],
        limits: Mapping[Text, float | None],
        dry_run: bool = False,
    ) -> Promise[None]:
        """Change limits of the entity that has these names; None removes one."""
        entity = checked_entity(names)
        check_limits(entity, limits)
        if dry_run:
            checked: Promise[None] = Promise()
            checked.resolve(None)
            return checked
        return self._broker.quotas.change(entity, dict(limits))

    @operation(Action.ALTER_CONFIGS, cluster)
    async def remove(self, session: Session, *, names: Mapping[Text, Text]) -> None:
        """Remove all limits of the entity that has these names."""
        entity = checked_entity(names)
        limits = next((one.limits for one in self._broker.quotas.all() if one.entity == entity), {})
        if limits:
            await self._broker.quotas.change(entity, dict.fromkeys(limits))

    @operation(Action.DESCRIBE_CONFIGS, cluster, merge=_sum, is_reading=True)
    async def usage(self, session: Session) -> Sequence[QuotaUsage]:
        """Return how much clients use of the limits that they have."""
        return [_usage(one) for one in self._broker.quotas.usage()]


def _check_filters(filters: Sequence[EntityFilter]) -> None:
    kinds = [one.kind for one in filters]
    unknown = [kind for kind in kinds if kind not in ENTITY_KINDS]
    if unknown:
        raise InvalidQuota(
            f"{unknown[0][:100]!r} is not a kind of entity; use {', '.join(ENTITY_KINDS)}."
        )
    if len(set(kinds)) < len(kinds):
        raise InvalidQuota("A kind of entity is given twice; give each once.")


def _usage(one: Usage) -> QuotaUsage:
    return QuotaUsage(one.key.limit, one.key.entity, one.limit, one.used, one.wait_ms)
