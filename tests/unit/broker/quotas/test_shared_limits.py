"""What all tenants share is limited for each: none can use up the room of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from goqueue.broker.gate.areas.schemas import Request, Subject
from goqueue.broker.gate.areas.transactions import Begun
from goqueue.loop.promise import Promise
from goqueue.model.access import (
    Acl,
    AclFilter,
    Action,
    PatternKind,
    Permission,
    ResourceKind,
)
from goqueue.model.credentials import KeyKind
from goqueue.model.errors import QuotaExceeded, QuotaReached
from goqueue.model.quotas import LIMITS, SHARED
from goqueue.model.session import Session
from goqueue.schemas.scopes import ConfigChange, Level, Mode
from tests.unit.broker.node import Node
from tests.unit.broker.quotas.test_quotas import ACME, OPERATOR, OTHER, limit
from tests.unit.schemas.desk import record


def rule(name: str) -> Acl:
    return Acl(
        ResourceKind.TOPIC,
        PatternKind.LITERAL,
        name,
        "User:x",
        "*",
        Action.READ,
        Permission.ALLOW,
    )


@dataclass
class House:
    """A node with two tenants, each of which has a user."""

    node: Node

    def __post_init__(self) -> None:
        self.gate = self.node.broker.gate
        self.wait = self.node.wait
        for tenant, user in (("acme", "alice"), ("other", "bob")):
            self.wait(self.gate.tenants.create(OPERATOR, tenant=tenant))
            created = self.gate.users.create(OPERATOR, user=user, password=None, tenant=tenant)
            self.wait(created)

    def user(self, session: Session, number: int) -> Promise[object]:
        name = f"{session.tenant or 'plain'}-{number}"
        return self.gate.users.create(session, user=name, password="correct horse")  # type: ignore[return-value]

    def key(self, session: Session, number: int) -> Promise[object]:
        return self.gate.users.create_key(  # type: ignore[return-value]
            session, user=session.user, kind=KeyKind.API, expires_ms=0, description=str(number)
        )

    def rule(self, session: Session, number: int) -> Promise[object]:
        return self.gate.acls.create(session, rules=[rule(f"t{number}")])  # type: ignore[return-value]

    def role(self, session: Session, number: int) -> Promise[object]:
        return self.gate.acls.create_role(session, role=f"r{number}", members=[])  # type: ignore[return-value]

    def version(self, session: Session, number: int) -> Promise[object]:
        return self.schema(session, Subject(".", f"s{number}"), number)

    def context(self, session: Session, number: int) -> Promise[object]:
        return self.schema(session, Subject(f".c{number}", "s"), 0)

    def setting(self, session: Session, number: int) -> Promise[object]:
        """Even numbers are settings of subjects, odd ones modes of contexts."""
        schemas = self.gate.schemas
        if number % 2:
            context = Subject(f".c{number}", "")
            return schemas.set_mode(session, subject=context, mode=Mode.READONLY, force=False)  # type: ignore[return-value]
        change = ConfigChange(level=Level.FULL)
        return schemas.set_config(  # type: ignore[return-value]
            session, subject=Subject(".", f"s{number}"), change=change
        )

    def schema(self, session: Session, subject: Subject, number: int) -> Promise[object]:
        return self.gate.schemas.register(  # type: ignore[return-value]
            session,
            subject=subject,
            request=Request(record(name=f"R{number}", a="string")),
            normalize=False,
            force=False,
        )

    def transaction(self, session: Session, number: int) -> Promise[Begun]:
        return self.gate.transactions.begin(
            session, transactional_id=f"t{number}", timeout_ms=60_000
        )


Make = Callable[[House, Session, int], Promise[object]]
MADE: dict[str, Make] = {
    "users": House.user,
    "keys": House.key,
    "rules": House.rule,
    "roles": House.role,
    "schema_versions": House.version,
    "contexts": House.context,
    "schema_settings": House.setting,
    "transactional_ids": House.transaction,
}


@pytest.fixture
def house() -> House:
    return House(Node(transactions__state_partitions="1"))


def count_until_refused(house: House, make: Make, session: Session, most: int) -> int:
    for number in range(most):
        try:
            house.wait(make(house, session, number))
        except QuotaReached:
            return number
    return most


@pytest.mark.parametrize("name", MADE)
def test_a_quota_limits_what_a_tenant_has(house: House, name: str) -> None:
    has_one = name in ("users", "contexts")  # its first user, its default context
    limit(house.node, {"tenant": "acme"}, **{name: 3.0})
    if name == "contexts":
        house.wait(house.version(ACME, 0))
    assert count_until_refused(house, MADE[name], ACME, 10) == 3 - has_one
    assert count_until_refused(house, MADE[name], OTHER, 5) == 5


@pytest.mark.parametrize("name", MADE)
def test_without_a_quota_a_tenant_has_a_share_and_the_default_one_has_no_limit(
    house: House, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHARED, name, 2)
    count_until_refused(house, MADE[name], ACME, 5)
    with pytest.raises(QuotaReached, match=name):
        house.wait(MADE[name](house, ACME, 9))
    if name != "keys":  # the operator has no user
        assert count_until_refused(house, MADE[name], OPERATOR, 5) == 5
    limit(house.node, {"tenant": "acme"}, **{name: 50.0})
    house.wait(MADE[name](house, ACME, 9))


def test_the_size_of_schemas_is_limited(house: House) -> None:
    limit(house.node, {"tenant": "acme"}, schema_bytes=200)
    assert count_until_refused(house, House.version, ACME, 20) < 10
    assert count_until_refused(house, House.version, OTHER, 20) == 20


def test_what_is_deleted_makes_room_again_and_a_restart_counts_the_same(house: House) -> None:
    limit(house.node, {"tenant": "acme"}, rules=2, users=3)
    for number in range(2):
        house.wait(house.rule(ACME, number))
        house.wait(house.user(ACME, number))
    house.node.restart_after_crash()
    house.gate = house.node.broker.gate
    for make in (house.rule, house.user):
        with pytest.raises(QuotaReached):
            house.wait(make(ACME, 7))
    house.wait(house.gate.acls.delete(ACME, filter=AclFilter(name="t0")))
    house.wait(house.gate.users.delete(ACME, user="acme-0"))
    house.wait(house.rule(ACME, 7))
    house.wait(house.user(ACME, 7))


def test_keys_are_of_the_tenant_of_their_user_and_go_with_it(house: House) -> None:
    limit(house.node, {"tenant": "acme"}, keys=1)
    house.wait(house.key(ACME, 1))
    with pytest.raises(QuotaReached):
        house.wait(house.key(ACME, 2))
    house.wait(house.gate.users.delete(OPERATOR, user="alice"))
    house.wait(house.gate.users.create(OPERATOR, user="alice", password=None, tenant="acme"))
    house.wait(house.key(ACME, 3))


@pytest.mark.parametrize("name", [one for one in MADE if one != "transactional_ids"])
def test_changes_of_identities_and_schemas_are_charged_as_mutations(
    house: House, name: str
) -> None:
    limit(house.node, {"tenant": "acme"}, controller_mutation_rate=0.5)
    house.wait(MADE[name](house, ACME, 0))
    with pytest.raises(QuotaExceeded):
        house.wait(MADE[name](house, ACME, 1))
    house.wait(MADE[name](house, OTHER, 1))


def test_every_shared_limit_can_be_set() -> None:
    assert set(SHARED) <= set(LIMITS)
    assert set(MADE) | {"schema_bytes"} == set(SHARED)


def test_settings_that_are_deleted_make_room_again(house: House) -> None:
    limit(house.node, {"tenant": "acme"}, schema_settings=2)
    assert count_until_refused(house, House.setting, ACME, 5) == 2
    house.wait(house.setting(ACME, 0))  # It has them already.
    house.node.restart_after_crash()
    house.gate = house.node.broker.gate
    with pytest.raises(QuotaReached):
        house.wait(house.setting(ACME, 2))
    house.wait(house.gate.schemas.delete_config(ACME, subject=Subject(".", "s0")))
    house.wait(house.setting(ACME, 2))
    context = Subject(".c1", "")
    house.wait(house.gate.schemas.delete_mode(ACME, subject=context, recursive=False))
    house.wait(house.setting(ACME, 4))
