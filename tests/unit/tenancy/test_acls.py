"""Decisions by access control lists, compared with the plain reading of Kafka's rules."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from time import perf_counter

import pytest

from goqueue.model.access import (
    CLUSTER,
    Acl,
    AclFilter,
    Action,
    PatternFilter,
    PatternKind,
    Permission,
    Resource,
    ResourceKind,
)
from goqueue.model.errors import InvalidAcl
from goqueue.model.tenants import tenant_of
from goqueue.tenancy.acls import CACHED_MAX, AccessControl, Reason, Who, checked

ALICE = Who("User:alice", "10.0.0.1")
BOB = Who("User:bob", "10.0.0.2")
ORDERS = Resource(ResourceKind.TOPIC, "orders")
IMPLIES_DESCRIBE = (Action.READ, Action.WRITE, Action.DELETE, Action.ALTER)


def rule(
    action: Action,
    name: str = "orders",
    *,
    who: str = "User:alice",
    is_prefix: bool = False,
    host: str = "*",
    is_deny: bool = False,
    kind: ResourceKind = ResourceKind.TOPIC,
) -> Acl:
    return Acl(
        kind,
        PatternKind.PREFIXED if is_prefix else PatternKind.LITERAL,
        name,
        who,
        host,
        action,
        Permission.DENY if is_deny else Permission.ALLOW,
    )


def control(*rules: Acl, **options: bool) -> AccessControl:
    made = AccessControl(["User:root"], allows_without_rules=options.get("open", False))
    for one in rules:
        made.add(one)
    return made


class Naive:
    """Reads all rules for each decision."""

    def __init__(self, rules: set[Acl], roles: dict[str, set[str]], *, is_open: bool) -> None:
        self.rules, self.roles, self.is_open = rules, roles, is_open

    def allows(self, who: Who, action: Action, resource: Resource) -> bool:
        if who.principal == "User:root":
            return True
        about = [one for one in self.rules if self._is_about(one, resource)]
        if not about:
            return self.is_open
        mine = [one for one in about if self._is_of(one, who)]
        denied = any(
            one.permission is Permission.DENY and one.action in (action, Action.ALL) for one in mine
        )
        return not denied and any(
            one.permission is Permission.ALLOW and self._covers(one.action, action) for one in mine
        )

    @staticmethod
    def _is_about(one: Acl, resource: Resource) -> bool:
        if one.kind is not resource.kind:
            return False
        if tenant_of(one.name) != tenant_of(resource.name):
            return False
        if one.pattern is PatternKind.PREFIXED:
            return resource.name.startswith(one.name)
        return one.name == resource.name or (one.name == "*" and not tenant_of(resource.name))

    def _is_of(self, one: Acl, who: Who) -> bool:
        role = one.principal.removeprefix("Role:")
        is_member = one.principal.startswith("Role:") and who.principal in self.roles.get(role, ())
        is_member = is_member and tenant_of(role) in ("", tenant_of(one.name))
        is_mine = one.principal in (who.principal, "User:*") or is_member
        return is_mine and one.host in ("*", who.host)

    @staticmethod
    def _covers(given: Action, wanted: Action) -> bool:
        if given in (wanted, Action.ALL):
            return True
        if wanted is Action.DESCRIBE:
            return given in IMPLIES_DESCRIBE
        return wanted is Action.DESCRIBE_CONFIGS and given is Action.ALTER_CONFIGS


NAMES = ["a", "ab", "abc", "abcd", "b", "ba", "*"]
PEOPLE = ["User:alice", "User:bob", "User:*", "Role:x", "Role:y", "User:ANONYMOUS"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
KINDS = [ResourceKind.TOPIC, ResourceKind.GROUP]
ACTIONS = [one for one in Action if one is not Action.ALL]


TENANT_NAMES = ["~", "~t~", "~t~a", "~t~ab", "~u~", "~u~a"]
TENANT_ROLES = ["~t~x", "~u~x"]


def some_rule(
    chance: random.Random, names: Sequence[str] = NAMES, people: Sequence[str] = PEOPLE
) -> Acl:
    return Acl(
        chance.choice(KINDS),
        chance.choice([*PatternKind]),
        chance.choice(names),
        chance.choice(people),
        chance.choice(HOSTS),
        chance.choice([*Action]),
        chance.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )


@pytest.mark.parametrize("seed", range(40))
def test_decisions_are_those_of_a_plain_reading(seed: int) -> None:
    chance = random.Random(seed)
    is_open = seed % 2 == 0
    made, rules, roles = control(open=is_open), set[Acl](), dict[str, set[str]]()
    naive = Naive(rules, roles, is_open=is_open)
    has_tenants = seed % 4 >= 2
    names = [*NAMES, *TENANT_NAMES] if has_tenants else NAMES
    role_names = ["x", "y", *TENANT_ROLES] if has_tenants else ["x", "y"]
    people = [*PEOPLE, *(f"Role:{one}" for one in role_names)]
    for _ in range(60):
        one = some_rule(chance, names, people)
        step = chance.random()
        if step < 0.5 and one not in rules:
            rules.add(one)
            made.add(one)
        elif step < 0.8 and rules:
            gone = chance.choice(sorted(rules))
            rules.remove(gone)
            made.remove(gone)
        elif step < 0.95:
            role = chance.choice(role_names)
            members = {f"User:{who}" for who in ("alice", "bob") if chance.random() < 0.5}
            roles[role] = members
            made.put_role(role, members)
        else:
            role = chance.choice(role_names)
            roles.pop(role, None)
            made.drop_role(role)
        for _ in range(30):
            who = Who(chance.choice(["User:alice", "User:bob", "User:root"]), chance.choice(HOSTS))
            resource = Resource(chance.choice(KINDS), chance.choice([*names, "zz"]))
            action = chance.choice(ACTIONS)
            expected = naive.allows(who, action, resource)
            assert made.allows(who, action, resource) is expected
            assert made.allows(who, action, resource) is expected  # from the cache
            verdict = made.explain(who, action, resource)
            assert verdict.is_allowed is expected
            if verdict.rule is not None:
                assert verdict.rule in rules


@pytest.mark.parametrize("seed", range(40))
def test_some_resource_is_allowed_if_one_can_be_found(seed: int) -> None:
    chance = random.Random(seed)
    made, rules = control(), set[Acl]()
    naive = Naive(rules, {}, is_open=False)
    # Every name that can make a difference, and one below each prefix that no rule names.
    names = [*NAMES, *(f"{name}~" for name in NAMES)]
    for _ in range(60):
        one = some_rule(chance)
        if one not in rules:
            rules.add(one)
            made.add(one)
        action = chance.choice(ACTIONS)
        found = any(
            naive.allows(ALICE, action, Resource(ResourceKind.TOPIC, name)) for name in names
        )
        assert made.allows_any(ALICE, action, ResourceKind.TOPIC) is found


def test_the_rule_that_decides_is_named() -> None:
    allowing = rule(Action.READ, "ord", is_prefix=True, who="Role:readers")
    denying = rule(Action.ALL, "*", host="10.0.0.1", is_deny=True, who="User:*")
    made = control(allowing)
    assert made.explain(ALICE, Action.READ, ORDERS).reason is Reason.NO_RULE_ALLOWS
    made.put_role("readers", ["User:alice", "User:bob"])
    for action in (Action.READ, Action.DESCRIBE):
        assert made.explain(ALICE, action, ORDERS).rule == allowing
    made.add(denying)
    verdict = made.explain(ALICE, Action.READ, ORDERS)
    assert (verdict.is_allowed, verdict.reason, verdict.rule) == (False, Reason.RULE, denying)
    assert made.explain(BOB, Action.READ, ORDERS).rule == allowing
    root = Who("User:root", "10.0.0.1")
    assert made.explain(root, Action.READ, ORDERS).reason is Reason.SUPER_USER
    assert control(open=True).explain(ALICE, Action.READ, ORDERS).reason is Reason.NO_RULES


def test_addresses_are_compared_as_connections_have_them() -> None:
    made = control(rule(Action.READ, host="10.0.0.1"), rule(Action.WRITE, host="fe80::1"))
    for host, action in (("::ffff:10.0.0.1", Action.READ), ("fe80::1%eth0", Action.WRITE)):
        assert made.allows(Who("User:alice", host), action, ORDERS)


def test_the_cache_is_bounded_and_dropped_with_a_change() -> None:
    made = control(rule(Action.READ, "t", is_prefix=True))
    for number in range(CACHED_MAX + 10):
        assert made.allows(ALICE, Action.READ, Resource(ResourceKind.TOPIC, f"t{number}"))
    assert len(made._cache) <= CACHED_MAX
    made.add(rule(Action.READ, "t1", is_deny=True))
    assert not made.allows(ALICE, Action.READ, Resource(ResourceKind.TOPIC, "t1"))


def test_a_change_of_one_tenant_leaves_the_decisions_of_others_cached() -> None:
    made = control()
    names = ("orders", "~t~orders", "~u~orders", "~u~invoices")
    resources = [Resource(ResourceKind.TOPIC, name) for name in names]

    def cached() -> set[str]:
        left = {resource.name for _, _, _, resource in made._cache}
        for one in resources:
            made.allows(ALICE, Action.READ, one)
        return left

    cached()
    made.add(rule(Action.READ, "~u~", is_prefix=True))
    assert cached() == {"orders", "~t~orders"}
    made.put_role("~t~x", ["User:alice"])
    assert cached() == {"orders", "~u~orders", "~u~invoices"}
    made.remove(rule(Action.READ, "~u~", is_prefix=True))
    made.add(rule(Action.READ, "*"))
    assert cached() == {"~t~orders"}
    made.put_role("x", ["User:alice"])
    assert cached() == set(), "a role of the default tenant may have rules about all resources"


def test_nothing_is_left_of_rules_that_are_gone() -> None:
    chance = random.Random(1)
    made, rules = control(open=True), {some_rule(chance) for _ in range(300)}
    made.put_role("x", ["User:alice"])
    for one in rules:
        made.add(one)
    for one in rules:
        made.remove(one)
    made.drop_role("x")
    assert not made._by_principal
    assert not made._pattern_uses
    assert not made._roles_of
    assert all(one.is_empty for one in made._of_everybody.values())


@pytest.mark.parametrize(
    "wrong",
    [
        rule(Action.READ, ""),
        rule(Action.READ, "x" * 2_000),
        rule(Action.READ, who="alice"),
        rule(Action.READ, who="Group:alice"),
        rule(Action.READ, who="User:"),
        rule(Action.READ, host="example.com"),
        rule(Action.READ, host=""),
        rule(Action.ALTER, "orders", kind=ResourceKind.CLUSTER),
        rule(Action.ALTER, CLUSTER.name, kind=ResourceKind.CLUSTER, is_prefix=True),
    ],
)
def test_rules_that_could_never_apply_are_refused(wrong: Acl) -> None:
    with pytest.raises(InvalidAcl):
        checked(wrong)


def test_hosts_are_stored_in_one_form() -> None:
    for host, stored in (("*", "*"), ("FE80:0::1", "fe80::1"), ("::ffff:10.0.0.1", "10.0.0.1")):
        assert checked(rule(Action.READ, host=host)).host == stored


def test_filters_select_as_kafkas_do() -> None:
    literal, prefix = rule(Action.READ, "orders"), rule(Action.READ, "ord", is_prefix=True)
    every, other = rule(Action.READ, "*"), rule(Action.READ, "payments")
    selected = {
        PatternFilter.LITERAL: {literal},
        PatternFilter.PREFIXED: set(),
        PatternFilter.ANY: {literal},
        PatternFilter.MATCH: {literal, prefix, every},
    }
    for pattern, expected in selected.items():
        filter = AclFilter(pattern=pattern, name="orders")
        assert {one for one in (literal, prefix, every, other) if filter.matches(one)} == expected
    assert AclFilter(pattern=PatternFilter.PREFIXED).matches(prefix)
    assert not AclFilter(pattern=PatternFilter.PREFIXED).matches(literal)
    for field in ("principal", "host", "action", "permission", "kind"):
        assert AclFilter(**{field: getattr(literal, field)}).matches(literal)
    assert not AclFilter(principal="User:bob").matches(literal)
    assert not AclFilter(permission=Permission.DENY).matches(literal)


def test_a_check_does_not_read_all_rules() -> None:
    """With many rules, a check that is not cached takes about as long as with few."""
    few, many = control(), control()
    for user, topic in product(range(100), range(100)):
        one = rule(Action.READ, f"team-{topic}.", who=f"User:u{user}", is_prefix=topic % 2 == 0)
        many.add(one)
        if user < 5 and topic < 20:
            few.add(one)

    def seconds(made: AccessControl) -> float:
        who = Who("User:u3", "10.0.0.1")
        resources = [Resource(ResourceKind.TOPIC, f"team-{one}.x") for one in range(500)]
        began = perf_counter()
        for resource in resources:
            made._allows(who, Action.WRITE, resource)
        return perf_counter() - began

    assert min(seconds(many) for _ in range(5)) < 20 * min(seconds(few) for _ in range(5))


INTERNAL = Resource(ResourceKind.TOPIC, "__scheduled")


@pytest.mark.parametrize(("name", "is_prefix"), [("*", False), ("_", True)])
def test_a_rule_for_all_topics_does_not_allow_internal_ones(name: str, is_prefix: bool) -> None:
    """They have the messages of topics that another rule denies, and the names of everybody."""
    for action in (Action.READ, Action.ALL, Action.ALTER_CONFIGS):
        wide = control(rule(action, name, is_prefix=is_prefix), rule(action, "o"))
        for wanted in (Action.READ, Action.DESCRIBE, Action.ALTER_CONFIGS):
            assert not wide.allows(ALICE, wanted, INTERNAL)
            assert not wide.explain(ALICE, wanted, INTERNAL).is_allowed
        assert wide.allows(ALICE, action, Resource(ResourceKind.TOPIC, "__mine"))
    denying = control(
        rule(Action.READ, "__scheduled"), rule(Action.ALL, name, is_prefix=is_prefix, is_deny=True)
    )
    assert not denying.allows(ALICE, Action.READ, INTERNAL)
    assert not denying.explain(ALICE, Action.READ, INTERNAL).is_allowed


@pytest.mark.parametrize(
    ("name", "is_prefix"), [("__scheduled", False), ("__", True), ("__sch", True)]
)
def test_a_rule_that_names_an_internal_topic_allows_it(name: str, is_prefix: bool) -> None:
    named = control(rule(Action.READ, name, is_prefix=is_prefix), rule(Action.READ, "*"))
    assert named.allows(ALICE, Action.READ, INTERNAL)
    assert named.explain(ALICE, Action.READ, INTERNAL).is_allowed
    assert not named.allows(ALICE, Action.READ, Resource(ResourceKind.TOPIC, "__audit")) or (
        name == "__"
    )


def test_internal_topics_without_rules_are_not_open() -> None:
    assert control(open=True).allows(ALICE, Action.READ, ORDERS)
    assert not control(open=True).allows(ALICE, Action.READ, INTERNAL)
    assert not control(open=True).explain(ALICE, Action.READ, INTERNAL).is_allowed
    assert control(open=True).allows(Who("User:root", ""), Action.READ, INTERNAL)
