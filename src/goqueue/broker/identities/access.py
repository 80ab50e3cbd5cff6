"""Access control: the rules and roles of the metadata, kept ready for checks and for lists.

A node decides by the metadata that it has applied, so it needs no controller to decide.
"""

from __future__ import annotations

import base64
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from goqueue.broker.controller.metadata import FactLog, done
from goqueue.cluster.facts import Decision, Forget
from goqueue.cluster.identity_commands import ChangeAcls, DeleteRole, PutRole
from goqueue.cluster.identity_facts import (
    ROLE_PREFIX,
    AclFact,
    RoleFact,
    acl_of_key,
)
from goqueue.model.access import ANY_PRINCIPAL, Acl, Action, Resource, ResourceKind
from goqueue.model.errors import InvalidRequest, InvalidRole, UnknownRole
from goqueue.model.session import USER_PREFIX, Session
from goqueue.model.tenants import Text, prefix_of_tenant
from goqueue.tenancy.acls import AccessControl, Verdict, Who

ROLE_NAME_LENGTH_MAX = 255
RULES_PER_DECISION_MAX = 1_000  # an entry of the metadata log stays small

_SEPARATOR = "\x00"  # sorts before everything else


class RulePage(NamedTuple):
    """Some rules in order, and where the next page begins; empty after the last."""

    rules: list[Acl]
    next: Text


class Access:
    """The rules and roles of a cluster. It is the policy of a node that controls access."""

    def __init__(
        self, log: FactLog, control: AccessControl, *, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called when a rule or role has changed."""
        self._log = log
        self._control = control
        self._on_change = on_change
        self._order: list[tuple[str, Acl]] | None = None  # made by the first list
        for fact in log.metadata.acls.values():
            control.add(fact.value)
        self._known = set(log.metadata.acls)
        for role in log.metadata.roles.values():
            control.put_role(role.name, role.members)
        log.on_applied(self._applied)

    # The policy

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return self._control.allows(Who(session.principal, session.client_host), action, resource)

    def allows_any(self, session: Session, action: Action, kind: ResourceKind) -> bool:
        """Whether the session may perform the action on some resource of a kind."""
        who = Who(session.principal, session.client_host)
        prefix = prefix_of_tenant(session.tenant)
        scope = f":.{prefix}" if prefix and kind is ResourceKind.SUBJECT else prefix
        return self._control.allows_any(who, action, kind, scope=scope)

    def explain(
        self, who: Who, action: Action, resource: Resource, *, shows_super_users: bool = True
    ) -> Verdict:
        return self._control.explain(who, action, resource, shows_super_users=shows_super_users)

    # Changes of the metadata

    def _applied(self, decision: Decision) -> None:
        changes = [self._apply(one) for one in decision]
        if any(changes):
            self._on_change()

    def _apply(self, change: object) -> bool:
        """Apply one change; return whether it concerns access."""
        if isinstance(change, AclFact):
            return self._put_rule(change)
        if isinstance(change, RoleFact):
            self._control.put_role(change.name, change.members)
            return True
        if isinstance(change, Forget):
            return self._forget(change.key)
        return False

    def _put_rule(self, fact: AclFact) -> bool:
        key = fact.key
        if key in self._known:
            return False
        self._known.add(key)
        self._control.add(fact.value)
        if self._order is not None:
            insort(self._order, (_place(fact.value), fact.value))
        return True

    def _forget(self, key: bytes) -> bool:
        if key in self._known:
            self._known.remove(key)
            rule = acl_of_key(key)
            self._control.remove(rule)
            if self._order is not None:
                del self._order[bisect_right(self._order, (_place(rule), rule)) - 1]
            return True
        if key.startswith(ROLE_PREFIX):
            self._control.drop_role(key[len(ROLE_PREFIX) :].decode())
            return True
        return False

    # Rules

    def rules(self, selects: Callable[[Acl], bool]) -> Iterator[Acl]:
        """Yield the selected rules, in order."""
        return (rule for _, rule in self._ordered() if selects(rule))

    def page(self, selects: Callable[[Acl], bool], *, after: str, limit: int) -> RulePage:
        """Return the next selected rules."""
        order = self._ordered()
        first = bisect_right(order, _read_cursor(after), key=lambda one: one[0]) if after else 0
        found: list[Acl] = []
        for _, rule in islice(order, first, None):
            if not selects(rule):
                continue
            if len(found) == limit:
                return RulePage(found, _cursor(_place(found[-1])))
            found.append(rule)
        return RulePage(found, "")

    def _ordered(self) -> Sequence[tuple[str, Acl]]:
        if self._order is None:
            facts = self._log.metadata.acls.values()
            self._order = sorted((_place(one.value), one.value) for one in facts)
        return self._order

    async def add(self, rules: Sequence[Acl]) -> None:
        """Add rules, of which some may exist already."""
        for part in _parts(rules):
            await done(self._log.request(ChangeAcls(added=part)))

    async def remove(self, rules: Sequence[Acl]) -> None:
        for part in _parts(rules):
            await done(self._log.request(ChangeAcls(removed=part)))

    # Roles

    @property
    def roles(self) -> Mapping[str, RoleFact]:
        return self._log.metadata.roles

    def role(self, name: str) -> RoleFact:
        known = self.roles.get(name)
        if known is None:
            raise UnknownRole(name)
        return known

    async def put_role(
        self,
        name: str,
        *,
        added: Sequence[str] = (),
        removed: Sequence[str] = (),
        must_exist: bool = False,
    ) -> RoleFact:
        """Create a role, or change who has it."""
        _check_role(name)
        for member in added:
            _check_member(member)
        command = PutRole(name, tuple(added), tuple(removed), must_exist)
        await done(self._log.request(command))
        return self.role(name)

    async def delete_role(self, name: str) -> None:
        """Delete a role and its rules."""
        await done(self._log.request(DeleteRole(name)))


def _parts(rules: Sequence[Acl]) -> Iterator[tuple[Acl, ...]]:
    for first in range(0, len(rules), RULES_PER_DECISION_MAX):
        yield tuple(rules[first : first + RULES_PER_DECISION_MAX])


def _place(rule: Acl) -> str:
    """Return what rules are sorted by: the resource first."""
    fields = (rule.kind, rule.name, rule.pattern, rule.principal, rule.host, rule.action)
    return _SEPARATOR.join((*fields, rule.permission))


def _cursor(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode()


def _read_cursor(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text.encode()).decode()
    except ValueError:
        raise InvalidRequest("The cursor is not one that a page returned.") from None


def _check_role(name: str) -> None:
    is_plain = name.isprintable() and name.strip() == name and not any(c in name for c in "/,:")
    if not 1 <= len(name) <= ROLE_NAME_LENGTH_MAX or not is_plain:
        raise InvalidRole(
            f"{name[:60]!r} cannot be a role: its name needs 1 to {ROLE_NAME_LENGTH_MAX} printable "
            "characters without `/`, `,`, `:` and spaces at the ends."
        )


def _check_member(member: str) -> None:
    if not member.startswith(USER_PREFIX) or member in (USER_PREFIX, ANY_PRINCIPAL):
        raise InvalidRole(
            f"{member[:60]!r} cannot have a role; name users, as User:NAME. For everybody, make "
            f"rules for {ANY_PRINCIPAL}."
        )
