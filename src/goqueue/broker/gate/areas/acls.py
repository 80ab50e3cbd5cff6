"""Operations on access control lists and roles."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from goqueue.broker.gate.operation import Area, cluster, everybody, operation, query
from goqueue.broker.identities.access import RulePage
from goqueue.model.access import (
    Acl,
    AclFilter,
    Action,
    PatternFilter,
    PatternKind,
    Permission,
    Resource,
)
from goqueue.model.errors import GoQueueError
from goqueue.model.session import Session
from goqueue.tenancy.acls import Reason, Verdict, Who, checked

__all__ = [
    "Acl",
    "AclFilter",
    "AclsArea",
    "PatternFilter",
    "PatternKind",
    "Permission",
    "Reason",
    "Role",
    "RolePage",
    "RulePage",
    "Verdict",
]

Outcomes = list[GoQueueError | None]


class Role(msgspec.Struct, frozen=True):
    """A role and the users that have it."""

    name: str
    members: tuple[str, ...]


class RolePage(msgspec.Struct, frozen=True):
    """Roles by name; the next page begins after `next`, which is empty on the last."""

    roles: list[Role]
    next: str


# Inside the area, `list` is an operation.
Rules = list[Acl]


class AclsArea(Area):
    """Access control lists and roles: create, list, delete, test."""

    @query(Action.DESCRIBE, everybody)
    def are_enforced(self, session: Session) -> bool:
        """Whether this node allows clients only what rules allow."""
        return self._authoriser.policy is not None

    # Rules

    @operation(Action.ALTER, cluster)
    async def create(self, session: Session, *, rules: Sequence[Acl]) -> Outcomes:
        """Create rules; those that exist are kept. Return an error for each invalid one."""
        outcomes: Outcomes = []
        valid: list[Acl] = []
        for rule in rules:
            try:
                valid.append(checked(rule))
                outcomes.append(None)
            except GoQueueError as error:
                outcomes.append(error)
        await self._broker.access.add(valid)
        return outcomes

    @operation(Action.DESCRIBE, cluster, is_reading=True)
    async def list(
        self, session: Session, *, filter: AclFilter, after: str = "", limit: int | None = None
    ) -> RulePage:
        """Return the rules that a filter selects: all, or a page of them after a cursor."""
        access = self._broker.access
        if limit is None:
            return RulePage([*access.rules(filter)], "")
        return access.page(filter, after=after, limit=limit)

    @operation(Action.ALTER, cluster)
    async def delete(self, session: Session, *, filter: AclFilter, dry_run: bool = False) -> Rules:
        """Delete the rules that a filter selects, and return them."""
        found = [*self._broker.access.rules(filter)]
        if not dry_run:
            await self._broker.access.remove(found)
        return found

    @query(Action.DESCRIBE, cluster)
    def test(
        self, session: Session, *, principal: str, host: str, action: Action, resource: Resource
    ) -> Verdict:
        """Return whether rules allow a principal an action, and which rule decides."""
        return self._broker.access.explain(Who(principal, host), action, resource)

    # Roles

    @operation(Action.ALTER, cluster)
    async def create_role(self, session: Session, *, role: str, members: Sequence[str]) -> Role:
        """Create a role with members; if it exists, they are added."""
        fact = await self._broker.access.put_role(role, added=members)
        return Role(fact.name, fact.members)

    @query(Action.DESCRIBE, cluster)
    def roles(self, session: Session, *, after: str = "", limit: int) -> RolePage:
        """Return a page of roles by name."""
        known = self._broker.access.roles
        names = [name for name in sorted(known) if name > after]
        page = [Role(name, known[name].members) for name in islice(names, limit)]
        return RolePage(page, page[-1].name if len(names) > limit else "")

    @query(Action.DESCRIBE, cluster)
    def role(self, session: Session, *, role: str) -> Role:
        """Return a role."""
        fact = self._broker.access.role(role)
        return Role(fact.name, fact.members)

    @operation(Action.ALTER, cluster)
    async def grant(self, session: Session, *, role: str, members: Sequence[str]) -> Role:
        """Give a role to users."""
        fact = await self._broker.access.put_role(role, added=members, must_exist=True)
        return Role(fact.name, fact.members)

    @operation(Action.ALTER, cluster)
    async def revoke(self, session: Session, *, role: str, members: Sequence[str]) -> Role:
        """Take a role from users."""
        fact = await self._broker.access.put_role(role, removed=members, must_exist=True)
        return Role(fact.name, fact.members)

    @operation(Action.ALTER, cluster)
    async def delete_role(self, session: Session, *, role: str) -> None:
        """Delete a role and its rules."""
        await self._broker.access.delete_role(role)
