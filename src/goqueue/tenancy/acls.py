"""Access control lists: decides by Kafka's rules who may do what.

A rule names a principal, a host, an action and resources: one (`LITERAL`), all whose names begin
alike (`PREFIXED`), or all of a kind (`LITERAL` with the name `*`). A denying rule takes precedence
over every allowing one. What no rule allows is denied. Rules whose principal is a role apply to all
members of the role.

Rules are indexed by principal and then by name, so a check costs a few lookups however many there
are. Results are cached until a rule or a role of the same tenant changes: these decide about its
own resources only. Roles of the default tenant can decide about those of every tenant.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import product
from typing import NamedTuple, TypeVar

import msgspec

from goqueue.model.access import (
    ANY_HOST,
    ANY_PRINCIPAL,
    ANY_RESOURCE,
    CLUSTER,
    ROLE_PREFIX,
    Acl,
    Action,
    PatternKind,
    Permission,
    Resource,
    ResourceKind,
)
from goqueue.model.errors import InvalidAcl
from goqueue.model.names import INTERNAL_TOPICS
from goqueue.model.session import USER_PREFIX
from goqueue.model.tenants import plain_name, scope_of, tenant_of, tenant_of_resource

K = TypeVar("K")

CACHED_MAX = 10_000  # results; a full cache is emptied
PRINCIPAL_LENGTH_MAX = 1_024
NAME_LENGTH_MAX = 1_024
INTERNAL_TOPIC_PREFIX = "__"

_BITS = {action: 1 << number for number, action in enumerate(Action)}
# The bits of rules that allow an action: its own, `ALL`, and those of actions that imply it.
_IMPLIED_BY = {
    Action.DESCRIBE: (Action.READ, Action.WRITE, Action.DELETE, Action.ALTER),
    Action.DESCRIBE_CONFIGS: (Action.ALTER_CONFIGS,),
}
_DENYING = {action: (action, Action.ALL) for action in Action}
_ALLOWING = {action: (*_DENYING[action], *_IMPLIED_BY.get(action, ())) for action in Action}
_DENYING_BITS = {action: sum({_BITS[one] for one in by}) for action, by in _DENYING.items()}
_ALLOWING_BITS = {action: sum({_BITS[one] for one in by}) for action, by in _ALLOWING.items()}


class Reason(StrEnum):
    """Why an action is allowed or denied."""

    SUPER_USER = "super_user"
    RULE = "rule"  # the rule of the verdict decides
    NO_RULE_ALLOWS = "no_rule_allows"
    NO_RULES = "no_rules"  # no rule applies to the resource, and a setting allows that


class Verdict(msgspec.Struct, frozen=True):
    """Whether an action is allowed, and why."""

    is_allowed: bool
    reason: Reason
    rule: Acl | None = None


class Who(NamedTuple):
    """A caller: its principal, and the address it calls from."""

    principal: str
    host: str


_Question = tuple[str, str, Action, Resource]  # the principal, its address, and what it would do


class _Masks:
    """The actions that rules of one principal, host and pattern allow and deny, as bits."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0


_ByHost = dict[str, _Masks]


class _Patterns:
    """The rules of one principal about one kind of resource, by their patterns."""

    __slots__ = ("_lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _ByHost] = {}
        self.prefixed: dict[str, _ByHost] = {}
        self._lengths: dict[int, int] = {}  # how many prefixes have a length

    def change(self, rule: Acl, *, is_added: bool) -> None:
        names = self.prefixed if rule.is_prefix else self.literal
        if is_added and rule.is_prefix and rule.name not in names:
            _count(self._lengths, len(rule.name), 1)
        by_host = names.setdefault(rule.name, {})
        _change_masks(by_host, rule, is_added=is_added)
        if not by_host:
            del names[rule.name]
            if rule.is_prefix:
                _count(self._lengths, len(rule.name), -1)

    def matching(self, name: str) -> list[_ByHost]:
        """Return the rules whose patterns match a name.

        Rules for all resources, or for a prefix, are those of the tenant that has the name.
        """
        found = []
        scope = len(scope_of(name))
        for literal in (name,) if scope else (name, ANY_RESOURCE):
            if literal in self.literal:
                found.append(self.literal[literal])
        for length in self._lengths:
            if length < scope:
                continue
            prefix = name[:length]
            if prefix in self.prefixed and len(prefix) == length:
                found.append(self.prefixed[prefix])
        return found

    def wide(self) -> list[_ByHost]:
        """Return the rules whose patterns do not name internal topics, although they match."""
        found = [self.literal.get(ANY_RESOURCE), self.prefixed.get(INTERNAL_TOPIC_PREFIX[:1])]
        return [one for one in found if one is not None]

    def all(self) -> Iterator[tuple[PatternKind, str, _ByHost]]:
        for name, by_host in self.literal.items():
            yield PatternKind.LITERAL, name, by_host
        for name, by_host in self.prefixed.items():
            yield PatternKind.PREFIXED, name, by_host

    @property
    def is_empty(self) -> bool:
        return not self.literal and not self.prefixed


class AccessControl:
    """The rules and roles of a cluster, and the decisions by them."""

    def __init__(
        self, super_users: Iterable[str] = (), *, allows_without_rules: bool = False
    ) -> None:
        """`allows_without_rules` allows what is done to resources that no rule is about."""
        self.super_users = frozenset(super_users)
        self._allows_without_rules = allows_without_rules
        self._by_principal: dict[tuple[str, ResourceKind], _Patterns] = {}
        # One entry for each pattern; only if resources without rules are treated differently.
        self._of_everybody: dict[ResourceKind, _Patterns] = {}
        self._pattern_uses: dict[tuple[ResourceKind, PatternKind, str], int] = {}
        self._roles: dict[str, frozenset[str]] = {}
        self._roles_of: dict[tuple[str, str], tuple[str, ...]] = {}  # by member and tenant
        self._cache: dict[_Question, bool] = {}
        self._cached_of: dict[str, list[_Question]] = {}  # by the tenant of the resource

    # Changes

    def add(self, rule: Acl) -> None:
        """Add a rule; it must not be there yet."""
        self._change(rule, is_added=True)

    def remove(self, rule: Acl) -> None:
        """Remove a rule, which must be there."""
        self._change(rule, is_added=False)

    def _change(self, rule: Acl, *, is_added: bool) -> None:
        key = (rule.principal, rule.kind)
        patterns = self._by_principal.setdefault(key, _Patterns())
        patterns.change(rule, is_added=is_added)
        if patterns.is_empty:
            del self._by_principal[key]
        if self._allows_without_rules:
            self._count_pattern(rule, is_added=is_added)
        self._forget(tenant_of_resource(rule.name))

    def _count_pattern(self, rule: Acl, *, is_added: bool) -> None:
        """Keep one entry for each pattern, whoever its rules are about."""
        place = (rule.kind, rule.pattern, rule.name)
        if is_added and place not in self._pattern_uses:
            self._change_of_everybody(rule, is_added=True)
        _count(self._pattern_uses, place, 1 if is_added else -1)
        if not is_added and place not in self._pattern_uses:
            self._change_of_everybody(rule, is_added=False)

    def _change_of_everybody(self, rule: Acl, *, is_added: bool) -> None:
        patterns = self._of_everybody.setdefault(rule.kind, _Patterns())
        general = Acl(
            rule.kind,
            rule.pattern,
            rule.name,
            ANY_PRINCIPAL,
            ANY_HOST,
            Action.ALL,
            Permission.ALLOW,
        )
        patterns.change(general, is_added=is_added)

    def put_role(self, name: str, members: Iterable[str]) -> None:
        """Create a role, or give it other members."""
        before, after = self._roles.get(name, frozenset()), frozenset(members)
        self._roles[name] = after
        self._change_members(name, before, after)

    def drop_role(self, name: str) -> None:
        self._change_members(name, self._roles.pop(name, frozenset()), frozenset())

    def _change_members(self, name: str, before: frozenset[str], after: frozenset[str]) -> None:
        role, tenant = ROLE_PREFIX + name, tenant_of(name)
        for member in before - after:
            left = tuple(one for one in self._roles_of[member, tenant] if one != role)
            if left:
                self._roles_of[member, tenant] = left
            else:
                del self._roles_of[member, tenant]
        for member in after - before:
            known = self._roles_of.get((member, tenant), ())
            self._roles_of[member, tenant] = (*known, role)
        if tenant:
            self._forget(tenant)
        else:
            self._forget_all()

    def _forget(self, tenant: str) -> None:
        """Forget the decisions about resources of a tenant."""
        for question in self._cached_of.pop(tenant, ()):
            del self._cache[question]

    def _forget_all(self) -> None:
        self._cache.clear()
        self._cached_of.clear()

    # Decisions

    def allows(self, who: Who, action: Action, resource: Resource) -> bool:
        if who.principal in self.super_users:
            return True
        key = (who.principal, who.host, action, resource)
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) >= CACHED_MAX:
                self._forget_all()
            known = self._cache[key] = self._allows(who, action, resource)
            self._cached_of.setdefault(tenant_of_resource(resource.name), []).append(key)
        return known

    def _allows(self, who: Who, action: Action, resource: Resource) -> bool:
        allowing, denying = _ALLOWING_BITS[action], _DENYING_BITS[action]
        kind, name = resource
        hosts = _hosts(who.host)
        allowed = 0
        for principal in self.principals(who.principal, tenant_of_resource(name)):
            patterns = self._by_principal.get((principal, kind))
            if patterns is None:
                continue
            wide = patterns.wide() if is_internal(resource) else []
            for by_host in patterns.matching(name):
                is_named = not any(by_host is one for one in wide)
                for host in hosts:
                    masks = by_host.get(host)
                    if masks is not None:
                        if masks.denied & denying:
                            return False
                        if is_named:
                            allowed |= masks.allowed
        return bool(allowed & allowing) or self._has_no_rules(resource)

    def principals(self, principal: str, tenant: str) -> Sequence[str]:
        """Return the principals whose rules about resources of a tenant apply to one.

        They are itself, everybody, and its roles: those of other tenants are not looked at, so that
        nobody makes the checks of others slower.
        """
        own = self._roles_of.get((principal, tenant), ()) if tenant else ()
        return (principal, ANY_PRINCIPAL, *self._roles_of.get((principal, ""), ()), *own)

    def _has_no_rules(self, resource: Resource) -> bool:
        if not self._allows_without_rules or is_internal(resource):
            return False
        patterns = self._of_everybody.get(resource.kind)
        return patterns is None or not patterns.matching(resource.name)

    def explain(
        self, who: Who, action: Action, resource: Resource, *, shows_super_users: bool = True
    ) -> Verdict:
        """Decide as `allows` does, and name the rule that decides.

        Without `shows_super_users`, decide as for a user that is none.
        """
        if shows_super_users and who.principal in self.super_users:
            return Verdict(True, Reason.SUPER_USER)
        for permission in (Permission.DENY, Permission.ALLOW):
            for rule in self._applying(who, action, resource, permission):
                return Verdict(permission is Permission.ALLOW, Reason.RULE, rule)
        if self._has_no_rules(resource):
            return Verdict(True, Reason.NO_RULES)
        return Verdict(False, Reason.NO_RULE_ALLOWS)

    def _applying(
        self, who: Who, action: Action, resource: Resource, permission: Permission
    ) -> Iterator[Acl]:
        """Yield the rules that allow, or deny, an action."""
        kind, name = resource
        is_deny = permission is Permission.DENY
        for principal in self.principals(who.principal, tenant_of_resource(name)):
            patterns = self._by_principal.get((principal, kind))
            for pattern, literal, by_host in () if patterns is None else patterns.all():
                if not _matches(pattern, literal, name):
                    continue
                if not is_deny and is_internal(resource) and not _names_internal(pattern, literal):
                    continue
                causes = (_DENYING if is_deny else _ALLOWING)[action]
                for host, cause in product(_hosts(who.host), causes):
                    masks = by_host.get(host)
                    bits = 0 if masks is None else masks.denied if is_deny else masks.allowed
                    if bits & _BITS[cause]:
                        yield Acl(kind, pattern, literal, principal, host, cause, permission)

    def allows_any(self, who: Who, action: Action, kind: ResourceKind, *, scope: str = "") -> bool:
        """Whether there can be a resource of a kind on which the action is allowed.

        With a scope, the resources are those of the tenant whose names begin with it.
        """
        if who.principal in self.super_users:
            return True
        allowing, denying = _ALLOWING_BITS[action], _DENYING_BITS[action]
        allowed, denied = _Cover(), _Cover()
        for principal in self.principals(who.principal, tenant_of_resource(scope)):
            patterns = self._by_principal.get((principal, kind))
            for pattern, name, by_host in () if patterns is None else patterns.all():
                if scope_of(name) != scope:
                    continue
                if scope and name == scope:
                    pattern, name = PatternKind.LITERAL, ANY_RESOURCE
                for host in _hosts(who.host):
                    masks = by_host.get(host)
                    if masks is not None and masks.denied & denying:
                        denied.add(pattern, name)
                    if masks is not None and masks.allowed & allowing:
                        allowed.add(pattern, name)
        if ANY_RESOURCE in denied.literal:
            return False
        if self._allows_without_rules or ANY_RESOURCE in allowed.literal:
            return True
        return allowed.exceeds(denied)


class _Cover:
    """The names and prefixes that some rules are about."""

    __slots__ = ("literal", "prefixed")

    def __init__(self) -> None:
        self.literal: set[str] = set()
        self.prefixed: set[str] = set()

    def add(self, pattern: PatternKind, name: str) -> None:
        (self.prefixed if pattern is PatternKind.PREFIXED else self.literal).add(name)

    def exceeds(self, other: _Cover) -> bool:
        """Whether some name here is not covered there."""
        prefixes = tuple(other.prefixed)
        if any(not name.startswith(prefixes) for name in self.prefixed):
            return True
        return any(
            name not in other.literal and not name.startswith(prefixes) for name in self.literal
        )


def _hosts(host: str) -> tuple[str, ...]:
    """Return the hosts in rules that stand for an address."""
    if ":" in host:
        host = host.partition("%")[0].removeprefix("::ffff:")
    return (ANY_HOST, host)


def _matches(pattern: PatternKind, pattern_name: str, name: str) -> bool:
    scope = scope_of(name)
    if pattern is PatternKind.PREFIXED:
        return name.startswith(pattern_name) and len(pattern_name) >= len(scope)
    return pattern_name == name or (pattern_name == ANY_RESOURCE and not scope)


def is_internal(resource: Resource) -> bool:
    """Whether a resource is an internal topic.

    Those contain messages, names and identities of everybody. A rule for all topics allows nothing
    with them: it must name them, or a prefix that only such topics have.
    """
    return resource.kind is ResourceKind.TOPIC and resource.name in INTERNAL_TOPICS


def _names_internal(pattern: PatternKind, name: str) -> bool:
    return (
        name.startswith(INTERNAL_TOPIC_PREFIX)
        if pattern is PatternKind.PREFIXED
        else name != ANY_RESOURCE
    )


def _change_masks(by_host: _ByHost, rule: Acl, *, is_added: bool) -> None:
    masks = by_host.setdefault(rule.host, _Masks())
    bit = _BITS[rule.action]
    which = "denied" if rule.permission is Permission.DENY else "allowed"
    bits: int = getattr(masks, which)
    setattr(masks, which, bits | bit if is_added else bits & ~bit)
    if not masks.allowed and not masks.denied:
        del by_host[rule.host]


def _count(counts: dict[K, int], key: K, change: int) -> None:
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]


# Validation


def checked(rule: Acl) -> Acl:
    """Return a rule in the form in which it is stored; raise if it could never apply."""
    if not 1 <= len(rule.name) <= NAME_LENGTH_MAX:
        raise InvalidAcl(f"Name a resource, with 1 to {NAME_LENGTH_MAX} characters.")
    is_cluster = plain_name(rule.name) == CLUSTER.name
    if rule.kind is ResourceKind.CLUSTER and (not is_cluster or rule.is_prefix):
        raise InvalidAcl(f"The only resource of the kind CLUSTER is the literal {CLUSTER.name!r}.")
    kind, _, name = rule.principal.partition(":")
    if f"{kind}:" not in (USER_PREFIX, ROLE_PREFIX) or not name:
        raise InvalidAcl(
            f"{rule.principal[:60]!r} is not a principal; write User:NAME, User:* or Role:NAME."
        )
    if len(rule.principal) > PRINCIPAL_LENGTH_MAX:
        raise InvalidAcl(f"A principal has at most {PRINCIPAL_LENGTH_MAX} characters.")
    return msgspec.structs.replace(rule, host=_checked_host(rule.host))


def _checked_host(host: str) -> str:
    """Return an address as connections have it: host names are not looked up, as in Kafka."""
    if host == ANY_HOST:
        return host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise InvalidAcl(
            f"{host[:60]!r} is not an IP address; rules name addresses or * for all hosts."
        ) from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
