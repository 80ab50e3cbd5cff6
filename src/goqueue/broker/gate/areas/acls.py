"""Operations on access control lists and roles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated

import msgspec

from goqueue.broker.gate.operation import Area, everybody, operation, own_cluster, query
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
from goqueue.model.tenants import NameKind, RoleName, Text
from goqueue.tenancy.acls import Reason, Verdict, Who, checked
from goqueue.tenancy.namespaces import ForeignName

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

    name: RoleName
    members: tuple[Text, ...]


class RolePage(msgspec.Struct, frozen=True):
    """Roles by name; the next page begins after `next`, which is empty on the last."""

    roles: list[Role]
    next: Text


# Inside the area, `list` is an operation.
Rules = list[Acl]
Filter = Annotated[AclFilter, NameKind.NONE]  # it selects rules as the client sees them


class AclsArea(Area):
    """Access control lists and roles: create, list, delete, test."""

    @query(Action.DESCRIBE, everybody)
    def are_enforced(self, session: Session) -> bool:
        """Whether this node allows clients only what rules allow."""
        return self._authoriser.policy is not None

    # Rules

    @operation(Action.ALTER, own_cluster)
    async def create(
        self, session: Session, *, rules: Sequence[Acl], is_whole: bool = False
    ) -> Outcomes:
        """Create rules; those that exist are kept. Return an error for each invalid one.

        If the rules are one whole, none is created if one is invalid, and its error is raised.
        """
        outcomes: Outcomes = []
        valid: list[Acl] = []
        for rule in rules:
            try:
                valid.append(checked(rule))
                outcomes.append(None)
            except GoQueueError as error:
                if is_whole:
                    raise
                outcomes.append(error)
        self._mutate(session, len(valid))
        await self._broker.access.add(valid)
        return outcomes

    @operation(Action.DESCRIBE, own_cluster, is_reading=True)
    async def list(
        self, session: Session, *, filter: Filter, after: Text = "", limit: int | None = None
    ) -> RulePage:
        """Return the rules that a filter selects: all, or a page of them after a cursor."""
        access = self._broker.access
        if limit is None:
            return RulePage([*access.rules(self._selects(session, filter))], "")
        return access.page(self._selects(session, filter), after=after, limit=limit)

    def _selects(self, session: Session, filter: AclFilter) -> Callable[[Acl], bool]:
        """Return whether a rule is selected; those of other tenants are not."""
        space = self._authoriser.namespaces.of(session)
        if space is None:
            return filter.matches

        def matches(rule: Acl) -> bool:
            try:
                return filter.matches(space.plain_rule(rule))
            except ForeignName:
                return False

        return matches

    @operation(Action.ALTER, own_cluster)
    async def delete(self, session: Session, *, filter: Filter, dry_run: bool = False) -> Rules:
        """Delete the rules that a filter selects, and return them."""
        found = [*self._broker.access.rules(self._selects(session, filter))]
        if not dry_run:
            self._mutate(session, len(found))
            await self._broker.access.remove(found)
        return found

    @query(Action.DESCRIBE, own_cluster)
    def test(
        self, session: Session, *, principal: Text, host: Text, action: Action, resource: Resource
    ) -> Verdict:
        """Return whether rules allow a principal an action, and which rule decides.

        Who is a super user of the cluster is not shown to tenants.
        """
        return self._broker.access.explain(
            Who(principal, host), action, resource, shows_super_users=not session.tenant
        )

    # Roles

    @operation(Action.ALTER, own_cluster)
    async def create_role(
        self, session: Session, *, role: RoleName, members: Sequence[Text]
    ) -> Role:
        """Create a role with members; if it exists, they are added."""
        self._mutate(session)
        fact = await self._broker.access.put_role(role, added=members)
        return Role(fact.name, fact.members)

    @query(Action.DESCRIBE, own_cluster)
    def roles(self, session: Session, *, after: RoleName = "", limit: int) -> RolePage:
        """Return a page of roles by name."""
        known = self._broker.access.roles
        space = self._authoriser.namespaces.of(session)
        names = [
            name
            for name in sorted(known)
            if name > after and (space is None or space.holds_name(name))
        ]
        page = [Role(name, known[name].members) for name in islice(names, limit)]
        return RolePage(page, page[-1].name if len(names) > limit else "")

    @query(Action.DESCRIBE, own_cluster)
    def role(self, session: Session, *, role: RoleName) -> Role:
        """Return a role."""
        fact = self._broker.access.role(role)
        return Role(fact.name, fact.members)

    @operation(Action.ALTER, own_cluster)
    async def grant(self, session: Session, *, role: RoleName, members: Sequence[Text]) -> Role:
        """Give a role to users."""
        self._mutate(session)
        fact = await self._broker.access.put_role(role, added=members, must_exist=True)
        return Role(fact.name, fact.members)

    @operation(Action.ALTER, own_cluster)
    async def revoke(self, session: Session, *, role: RoleName, members: Sequence[Text]) -> Role:
        """Take a role from users."""
        self._mutate(session)
        fact = await self._broker.access.put_role(role, removed=members, must_exist=True)
        return Role(fact.name, fact.members)

    @operation(Action.ALTER, own_cluster)
    async def delete_role(self, session: Session, *, role: RoleName) -> None:
        """Delete a role and its rules."""
        self._mutate(session)
        await self._broker.access.delete_role(role)
