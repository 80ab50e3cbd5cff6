"""The policy of a node follows its metadata, one change at a time."""

from __future__ import annotations

from time import perf_counter

import pytest

from goqueue.broker.controller.metadata import AppliedMetadata
from goqueue.broker.identities.access import RULES_PER_DECISION_MAX, Access
from goqueue.cluster.facts import Forget
from goqueue.cluster.identity_commands import (
    ROLES_PER_MEMBER_MAX,
    ChangeAcls,
    DeleteRole,
    DeleteUser,
    PutKey,
    PutRole,
    PutUser,
)
from goqueue.cluster.identity_facts import KeyFact, TenantFact, UserFact
from goqueue.cluster.metadata import Metadata
from goqueue.cluster.raft.messages import Members, Position
from goqueue.cluster.raft.ready import Snapshot
from goqueue.cluster.tenant_commands import PutTenant
from goqueue.loop.promise import promised
from goqueue.model.access import (
    Acl,
    AclFilter,
    Action,
    PatternKind,
    Permission,
    Resource,
    ResourceKind,
)
from goqueue.model.credentials import Key, KeyKind
from goqueue.model.errors import InvalidRole, LimitReached
from goqueue.model.quotas import KEYS
from goqueue.model.session import Session
from goqueue.tenancy.acls import AccessControl, Reason
from tests.unit.broker.node import Node
from tests.unit.broker.tenants import put_tenant
from tests.unit.effort import steps_of

ALICE = Session("test", principal="User:alice", client_host="10.0.0.1")
ORDERS = Resource(ResourceKind.TOPIC, "orders")


def rule(principal: str = "User:alice", name: str = "orders") -> Acl:
    return Acl(
        ResourceKind.TOPIC,
        PatternKind.LITERAL,
        name,
        principal,
        "*",
        Action.READ,
        Permission.ALLOW,
    )


def metadata_with(*commands: ChangeAcls | PutRole | PutUser | PutTenant) -> Metadata:
    made = Metadata()
    for command in commands:
        made.apply_all(command.decide(made)[0])
    return made


def snapshot(metadata: Metadata, index: int) -> Snapshot:
    return Snapshot(Position(index, 1), Members((1,)), metadata.snapshot())


@pytest.fixture
def node() -> Node:
    return Node(security__access_control="on")


def test_rules_of_the_metadata_apply_at_once_and_after_a_restart(node: Node) -> None:
    assert not node.broker.access.allows(ALICE, Action.READ, ORDERS)
    node.wait(promised(node.broker.access.add([rule()])))
    assert node.broker.access.allows(ALICE, Action.READ, ORDERS)
    node.restart_after_crash()
    assert node.broker.access.allows(ALICE, Action.READ, ORDERS)
    node.wait(promised(node.broker.access.remove([rule(), rule(name="never")])))
    assert not node.broker.access.allows(ALICE, Action.READ, ORDERS)


def test_roles_apply_to_their_members(node: Node) -> None:
    access = node.broker.access
    node.wait(promised(access.add([rule("Role:readers")])))
    node.wait(promised(access.put_role("readers", added=["User:alice"])))
    assert access.allows(ALICE, Action.READ, ORDERS)
    node.wait(promised(access.put_role("readers", removed=["User:alice"], must_exist=True)))
    assert not access.allows(ALICE, Action.READ, ORDERS)
    node.wait(promised(access.put_role("readers", added=["User:alice"])))
    node.wait(promised(access.delete_role("readers")))
    assert not access.allows(ALICE, Action.READ, ORDERS)
    assert not access.roles
    assert [*access.rules(AclFilter().matches)] == []


def test_a_deleted_user_loses_its_roles(node: Node) -> None:
    access = node.broker.access
    node.wait(promised(node.broker.identities.create_user("alice", None)))
    node.wait(promised(access.add([rule("Role:readers")])))
    node.wait(promised(access.put_role("readers", added=["User:alice"])))
    node.wait(promised(node.broker.identities.delete_user("alice")))
    assert not access.allows(ALICE, Action.READ, ORDERS)


def test_grants_are_dropped_when_rules_change_and_only_then(node: Node) -> None:
    changes: list[int] = []
    node.broker.gate._authoriser.on_change(lambda: changes.append(1))
    node.wait(promised(node.broker.access.add([rule()])))
    assert len(changes) == 1
    node.wait(promised(node.broker.access.add([rule()])))  # It is there already.
    node.create("orders")
    assert len(changes) == 1
    node.wait(promised(node.broker.access.put_role("readers")))
    assert len(changes) == 2


def test_many_rules_are_added_in_parts(node: Node) -> None:
    rules = [rule(name=f"t{number}") for number in range(2 * RULES_PER_DECISION_MAX + 1)]
    node.wait(promised(node.broker.access.add(rules)))
    page = node.broker.access.page(AclFilter().matches, after="", limit=10)
    assert [one.name for one in page.rules[:3]] == ["t0", "t1", "t10"]
    assert len([*node.broker.access.rules(AclFilter().matches)]) == len(rules)


def test_the_number_of_rules_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goqueue.cluster.identity_commands.ACLS_MAX", 2)
    metadata = metadata_with(ChangeAcls(added=(rule(name="a"), rule(name="b"))))
    with pytest.raises(LimitReached):
        ChangeAcls(added=(rule(name="c"),)).decide(metadata)
    ChangeAcls(added=(rule(name="a"),)).decide(metadata)  # It is there already.


def test_keys_are_counted_for_the_tenant_of_a_user_that_comes_later_in_the_log() -> None:
    """As it does in a compacted log, if it was changed after its keys were made."""
    key = KeyFact(Key(id="k", kind=KeyKind.API, user="alice", digest=b"", created_ms=0))
    metadata = Metadata()
    metadata.apply(key)
    metadata.apply(UserFact("alice", 0, tenant="acme", version=2))
    assert metadata.identity_counts.get(KEYS, "acme") == 1
    assert metadata.identity_counts.get(KEYS, "") == 0
    metadata.apply(Forget(key.key))
    metadata.apply(UserFact("alice", 0, tenant="acme", version=3))
    assert metadata.identity_counts.get(KEYS, "acme") == 0


def test_keys_of_one_user_cost_no_look_at_those_of_all() -> None:
    """Anybody may make and delete keys of their own; the active controller decides about them."""

    def key(number: int, user: str) -> KeyFact:
        made = Key(id=f"k{number}", kind=KeyKind.API, user=user, digest=b"", created_ms=0)
        return KeyFact(made)

    metadata = Metadata()
    for fact in (UserFact("alice", 0), UserFact("bob", 0), key(0, "alice"), key(1, "alice")):
        metadata.apply(fact)
    for number in range(2, 2_000):
        metadata.apply(key(number, "bob"))
    _, put = steps_of(lambda: PutKey(key(2_000, "alice")).decide(metadata))
    (gone, _), deleted = steps_of(lambda: DeleteUser("alice").decide(metadata))
    assert gone == (Forget(b"user/alice"), Forget(b"key/k0"), Forget(b"key/k1"))
    assert put < 200
    assert deleted < 200


def test_a_tenant_does_not_learn_who_is_a_super_user() -> None:
    node = Node(security__access_control="on", security__super_users="User:root")
    asked = {"principal": "User:root", "host": "*", "action": Action.READ, "resource": ORDERS}
    node.wait(put_tenant(node.broker, "acme"))
    node.broker.gate.policy = None
    acme = Session("http", principal="User:boss", tenant="acme")
    found = node.broker.gate.acls.test(acme, **asked)  # type: ignore[arg-type]
    assert found.reason is Reason.NO_RULE_ALLOWS
    operator = Session("http", principal="User:root")
    found = node.broker.gate.acls.test(operator, **asked)  # type: ignore[arg-type]
    assert found.reason is Reason.SUPER_USER


def test_a_role_has_users_of_its_own_tenant_only() -> None:
    metadata = metadata_with(
        PutTenant(TenantFact("acme", 0, "1", version=1)),
        PutUser(UserFact("alice", 0, tenant="acme", version=1)),
        PutUser(UserFact("bob", 0, version=1)),
    )
    for role, member in (("~acme~r", "User:bob"), ("r", "User:alice")):
        with pytest.raises(InvalidRole, match="another tenant"):
            PutRole(role, added=(member,)).decide(metadata)
    for role, member in (("~acme~r", "User:alice"), ("r", "User:bob"), ("~acme~r", "User:token")):
        PutRole(role, added=(member,)).decide(metadata)


def test_the_roles_of_a_member_are_limited_in_each_tenant() -> None:
    metadata = metadata_with(
        *(PutRole(f"~acme~{one}", added=("User:x",)) for one in range(ROLES_PER_MEMBER_MAX))
    )
    with pytest.raises(LimitReached, match="roles"):
        PutRole("~acme~more", added=("User:x",)).decide(metadata)
    PutRole("~acme~0", added=("User:x",)).decide(metadata)  # It has that one.
    PutRole("~other~r", added=("User:x",)).decide(metadata)
    metadata.apply_all(DeleteRole("~acme~0").decide(metadata)[0])
    PutRole("~acme~more", added=("User:x",)).decide(metadata)


def test_roles_of_other_tenants_are_not_looked_at_in_a_check() -> None:
    control = AccessControl()
    for number in range(1_000):
        control.put_role(f"~acme~r{number}", ["User:bob"])
    control.put_role("mine", ["User:bob"])
    assert list(control.principals("User:bob", "")) == ["User:bob", "User:*", "Role:mine"]
    assert len(control.principals("User:bob", "other")) == 3


def test_a_snapshot_replaces_rules_and_roles() -> None:
    """A node that was too far behind must forget the rules that are gone."""
    before = metadata_with(
        ChangeAcls(added=(rule(), rule("Role:readers", "mails"))),
        PutRole("readers", added=("User:alice",)),
        PutRole("others", added=("User:alice",)),
    )
    after = metadata_with(
        ChangeAcls(added=(rule("Role:readers", "mails"), rule("Role:others"))),
        PutRole("readers", added=("User:bob",)),
    )
    log = AppliedMetadata(snapshot(before, 1))
    changes: list[int] = []
    access = Access(log, AccessControl(), on_change=lambda: changes.append(1))  # type: ignore[arg-type]
    mails = Resource(ResourceKind.TOPIC, "mails")
    assert access.allows(ALICE, Action.READ, ORDERS)
    assert access.allows(ALICE, Action.READ, mails)
    assert len([*access.rules(AclFilter().matches)]) == 2
    log.restore(snapshot(after, 9))
    assert changes
    assert not access.allows(ALICE, Action.READ, ORDERS)
    assert not access.allows(ALICE, Action.READ, mails)
    bob = Session("test", principal="User:bob")
    assert access.allows(bob, Action.READ, mails)
    assert {one.name for one in access.rules(AclFilter().matches)} == {"mails", "orders"}


def test_one_change_among_many_rules_is_cheap() -> None:
    rules = tuple(rule(f"User:u{number}", f"t{number}") for number in range(20_000))
    log = AppliedMetadata(snapshot(metadata_with(ChangeAcls(added=rules)), 1))
    access = Access(log, AccessControl(), on_change=lambda: None)  # type: ignore[arg-type]
    [*access.rules(AclFilter().matches)]
    began = perf_counter()
    for number in range(100):
        decision, _ = ChangeAcls(added=(rule(name=f"new{number}"),)).decide(log.metadata)
        log.metadata.apply_all(decision)
        access._applied(decision)
    assert perf_counter() - began < 0.5  # 5 ms each would be a rebuild.
