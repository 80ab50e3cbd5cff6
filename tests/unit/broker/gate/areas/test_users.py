"""Users and keys behind the gate: who may see and change which, and what a key may not do."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.broker.gate.areas.users import NewKeyView, SaltedPassword, UsersArea, UserView
from goqueue.broker.gate.authentication import Authentication
from goqueue.broker.identities.key_uses import COLLECT_MS, WRITE_EVERY_MS
from goqueue.cluster.identity_commands import KEYS_PER_USER_MAX
from goqueue.model.access import (
    CLUSTER,
    Acl,
    Action,
    PatternKind,
    Permission,
    Resource,
    ResourceKind,
)
from goqueue.model.credentials import KeyKind, ScramMechanism
from goqueue.model.errors import (
    AccessDenied,
    AuthenticationFailed,
    GoQueueError,
    InvalidCredential,
    InvalidRequest,
    LimitReached,
    UnknownKey,
    UnknownUser,
    UserExists,
)
from goqueue.model.session import Session, pack_session
from goqueue.model.tenants import TenantState
from tests.unit.broker.gate.areas.policies import Only
from tests.unit.broker.node import Node
from tests.unit.broker.tenants import put_tenant

ADMIN = Session("http", principal="User:admin", mechanism="password")
ALICE = Session("http", principal="User:alice", mechanism="password", client_host="10.0.0.7")
ROOT = Session("http", principal="User:root", mechanism="password")
BOB = Session("http", principal="User:bob", mechanism="password")
NOBODY = Session("http", client_host="10.0.0.7")
PASSWORD = "correct horse"
HOUR_MS = 3_600_000


class Policy(Only):
    """Allows everything to the administrator, and nothing to others."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return session.principal == "User:admin"


class Everything(Only):
    """Allows everything to everybody."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return True


def _rule(principal: str) -> Acl:
    pattern, permission = PatternKind.LITERAL, Permission.ALLOW
    return Acl(ResourceKind.TOPIC, pattern, "orders", principal, "*", Action.READ, permission)


class Desk:
    def __init__(self) -> None:
        self.node = Node(security__super_users="User:root")
        self.wait = self.node.wait
        for name in ("admin", "alice", "bob", "root"):
            self.create(name, password=PASSWORD if name == "alice" else None)
        self.node.broker.gate.policy = Policy()

    @property
    def area(self) -> UsersArea:
        return self.node.broker.gate.users

    @property
    def authentication(self) -> Authentication:
        return self.node.broker.gate.authentication

    def now_ms(self) -> int:
        return self.node.broker.clock.wall_ms()

    def create(
        self,
        name: str,
        session: Session = ADMIN,
        *,
        tenant: str | None = None,
        password: str | None = None,
    ) -> UserView:
        made = self.area.create(session, user=name, password=password, tenant=tenant)
        return self.wait(made)

    def key(
        self, session: Session, user: str, kind: KeyKind = KeyKind.API, expires_ms: int = 0
    ) -> NewKeyView:
        made = self.area.create_key(
            session, user=user, kind=kind, expires_ms=expires_ms, description="for tests"
        )
        return self.wait(made)

    def rotate(self, session: Session, key_id: str, expires_ms: int | None = None) -> NewKeyView:
        made = self.area.rotate_key(
            session, key_id=key_id, overlap_ms=HOUR_MS, expires_ms=expires_ms
        )
        return self.wait(made)

    def login(self, secret: str) -> Session:
        return self.authentication.api_key(NOBODY, secret)


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Users


def test_users_are_listed_in_pages(desk: Desk) -> None:
    page = desk.area.list(ADMIN, prefix="", after="", limit=3)
    assert [one.name for one in page.users] == ["admin", "alice", "bob"]
    rest = desk.area.list(ADMIN, prefix="", after=page.next_cursor, limit=3)
    assert ([one.name for one in rest.users], rest.next_cursor) == (["root"], "")
    assert desk.area.list(ADMIN, prefix="al", after="", limit=3).users[0].name == "alice"


def test_a_user_sees_itself_and_nobody_else(desk: Desk) -> None:
    assert desk.area.show(ALICE, user="alice").name == "alice"
    for name in ("bob", "missing"):
        with pytest.raises(AccessDenied):
            desk.area.show(ALICE, user=name)
        with pytest.raises(AccessDenied):
            desk.area.keys(ALICE, user=name)
    with pytest.raises(AccessDenied):
        desk.area.list(ALICE, prefix="", after="", limit=10)
    with pytest.raises(UnknownUser):
        desk.area.show(ADMIN, user="missing")


def test_the_anonymous_user_is_not_its_own_user(desk: Desk) -> None:
    for call in (
        lambda: desk.area.show(NOBODY, user="ANONYMOUS"),
        lambda: desk.area.keys(NOBODY, user="ANONYMOUS"),
        lambda: desk.key(NOBODY, "ANONYMOUS"),
        lambda: desk.wait(desk.area.set_password(NOBODY, user="ANONYMOUS", password=PASSWORD)),
    ):
        with pytest.raises(AccessDenied):
            call()


def test_only_an_administrator_changes_users(desk: Desk) -> None:
    for call in (
        desk.area.create(ALICE, user="new", password=None),
        desk.area.disable(ALICE, user="bob"),
        desk.area.delete(ALICE, user="bob"),
        desk.area.set_password(ALICE, user="bob", password=PASSWORD),
    ):
        with pytest.raises(AccessDenied):
            desk.wait(call)
    with pytest.raises(UserExists):
        desk.create("bob")
    desk.wait(desk.area.delete(ADMIN, user="bob"))
    with pytest.raises(UnknownUser):
        desk.wait(desk.area.delete(ADMIN, user="bob"))


def test_an_administrator_cannot_lock_itself_out(desk: Desk) -> None:
    with pytest.raises(InvalidRequest, match="your own user"):
        desk.wait(desk.area.delete(ADMIN, user="admin"))
    with pytest.raises(InvalidRequest, match="your own user"):
        desk.wait(desk.area.disable(ADMIN, user="admin"))


def test_who_may_alter_the_cluster_cannot_become_a_super_user_that_has_no_password() -> None:
    """A super user with a certificate need not exist as a user: nobody else may create it."""
    node = Node(security__super_users="User:root;User:CN=root")
    node.wait(put_tenant(node.broker, "acme"))
    node.broker.gate.policy = Policy()
    area = node.broker.gate.users
    tenant = msgspec.structs.replace(ADMIN, tenant="acme")
    for session in (ADMIN, tenant):
        with pytest.raises(AccessDenied):
            node.wait(area.create(session, user="root", password=PASSWORD))
    assert "root" not in node.broker.identities.users


@pytest.mark.parametrize("name", ["*", "ANONYMOUS"])
def test_a_user_cannot_have_a_name_that_stands_for_others(desk: Desk, name: str) -> None:
    with pytest.raises(InvalidCredential):
        desk.wait(desk.area.create(ADMIN, user=name, password=PASSWORD))


def test_credentials_of_super_users_are_for_super_users(desk: Desk) -> None:
    root = Session("http", principal="User:root", mechanism="password")
    for call in (
        lambda: desk.wait(desk.area.set_password(ADMIN, user="root", password=PASSWORD)),
        lambda: desk.key(ADMIN, "root"),
        lambda: desk.wait(desk.area.disable(ADMIN, user="root")),
        lambda: desk.wait(desk.area.delete(ADMIN, user="root")),
    ):
        with pytest.raises(AccessDenied):
            call()
    assert desk.key(root, "root").key.user == "root"


def test_a_password_is_changed_with_the_old_one_not_with_a_key(desk: Desk) -> None:
    with_key = desk.login(desk.key(ALICE, "alice").secret)
    with pytest.raises(AccessDenied):
        desk.wait(desk.area.set_password(with_key, user="alice", password="new password"))
    desk.wait(desk.area.set_password(ALICE, user="alice", password="new password"))
    again = desk.wait(desk.authentication.password(NOBODY, "alice", "new password"))
    assert again.principal == "User:alice"
    with pytest.raises(AuthenticationFailed):
        desk.wait(desk.authentication.password(NOBODY, "alice", PASSWORD))


@pytest.mark.parametrize("password", ["short", "x" * 1025, "gqk_looks_like_a_key"])
def test_a_password_is_bounded_and_no_key(desk: Desk, password: str) -> None:
    with pytest.raises(InvalidCredential) as refused:
        desk.wait(desk.area.set_password(ALICE, user="alice", password=password))
    assert password not in str(refused.value)


def test_users_of_a_tenant_are_seen_there_and_by_operators(desk: Desk) -> None:
    acme = msgspec.structs.replace(ADMIN, tenant="acme")
    desk.node.wait(put_tenant(desk.node.broker, "acme"))
    desk.create("carol", acme)
    with pytest.raises(UnknownUser):
        desk.area.show(ADMIN, user="carol")  # It may alter the cluster, but is no super user.
    assert [one.name for one in desk.area.list(acme, prefix="", after="", limit=9).users] == [
        "carol"
    ]
    with pytest.raises(UnknownUser):
        desk.area.show(acme, user="alice")
    with pytest.raises(InvalidRequest):
        desk.create("dave", acme, tenant="other")
    key = desk.key(ADMIN, "alice").key
    with pytest.raises(UnknownKey):
        desk.area.show_key(acme, key_id=key.id)
    desk.node.broker.gate.policy = None
    assert desk.area.show(ADMIN, user="carol").tenant == "acme"


def test_a_tenant_cannot_take_a_name_that_others_have_rules_or_roles_for(desk: Desk) -> None:
    """Clients with certificates and tokens have no user, which would move them into a tenant."""
    acme = msgspec.structs.replace(ADMIN, tenant="acme")
    root = msgspec.structs.replace(ADMIN, principal="User:root")
    desk.node.broker.gate.policy = Everything()
    desk.wait(put_tenant(desk.node.broker, "acme"))
    acls = desk.node.broker.gate.acls
    desk.wait(acls.create(root, rules=[_rule("User:CN=pay")]))
    desk.wait(acls.create_role(root, role="clerks", members=["User:CN=clerk"]))
    desk.wait(acls.create(acme, rules=[_rule("User:CN=own")]))
    desk.wait(acls.create_role(acme, role="clerks", members=["User:CN=own"]))
    salted = SaltedPassword(ScramMechanism.SHA_256, 4096, b"salt", bytes(32))
    for name in ("CN=pay", "CN=clerk"):
        with pytest.raises(UserExists):
            desk.create(name, acme)
        with pytest.raises(UserExists):
            desk.wait(
                desk.area.alter_scram_verifiers(acme, user=name, changed=(salted,), removed=())
            )
    with pytest.raises(UserExists):
        desk.create("CN=own")  # nor can an administrator of the default tenant
    desk.create("CN=own", acme)
    desk.create("CN=pay", root, tenant="acme")  # Operators decide who belongs where.


# Keys


def test_a_key_authenticates_as_its_user_until_it_is_deleted(desk: Desk) -> None:
    made = desk.key(ALICE, "alice")
    session = desk.login(made.secret)
    assert (session.principal, session.key_id) == ("User:alice", made.key.id)
    assert desk.authentication.is_valid(session)
    desk.wait(desk.area.delete_key(ALICE, key_id=made.key.id))
    assert not desk.authentication.is_valid(session)
    with pytest.raises(AuthenticationFailed):
        desk.login(made.secret)


def test_the_secret_is_shown_once_and_not_printed(desk: Desk) -> None:
    made = desk.key(ALICE, "alice")
    assert made.secret not in repr(made)
    assert made.secret not in repr(desk.area.keys(ALICE, user="alice"))
    assert made.secret not in repr(desk.node.broker.identities.keys)


def test_keys_of_others_look_like_no_keys(desk: Desk) -> None:
    key_id = desk.key(BOB, "bob").key.id
    for name in (key_id, "missing"):
        for call in (
            lambda name=name: desk.area.show_key(ALICE, key_id=name),
            lambda name=name: desk.wait(desk.area.delete_key(ALICE, key_id=name)),
            lambda name=name: desk.rotate(ALICE, name),
        ):
            with pytest.raises(AccessDenied):
                call()
    with pytest.raises(UnknownKey):
        desk.area.show_key(ADMIN, key_id="missing")
    assert desk.area.show_key(ADMIN, key_id=key_id).user == "bob"


def test_a_key_makes_no_keys_that_outlive_it(desk: Desk) -> None:
    until_ms = desk.now_ms() + HOUR_MS
    session = desk.login(desk.key(ALICE, "alice", expires_ms=until_ms).secret)
    for expires_ms in (0, until_ms + 1):
        with pytest.raises(InvalidCredential):
            desk.key(session, "alice", expires_ms=expires_ms)
        with pytest.raises(InvalidCredential):
            desk.rotate(session, session.key_id, expires_ms)
    child = desk.key(session, "alice", expires_ms=until_ms).key
    assert child.created_by == f"key:{session.key_id}"
    assert desk.rotate(session, session.key_id).key.expires_ms == until_ms


def test_a_key_cannot_be_made_expired(desk: Desk) -> None:
    with pytest.raises(InvalidCredential):
        desk.key(ALICE, "alice", expires_ms=desk.now_ms())


def test_a_rotated_key_is_valid_during_the_overlap(desk: Desk) -> None:
    old = desk.key(ALICE, "alice")
    new = desk.rotate(ALICE, old.key.id)
    assert new.key.description == "for tests"
    first, second = desk.login(old.secret), desk.login(new.secret)
    desk.node.run_for(HOUR_MS)
    assert not desk.authentication.is_valid(first)
    assert desk.authentication.is_valid(second)
    with pytest.raises(AuthenticationFailed):
        desk.login(old.secret)
    assert desk.login(new.secret).user == "alice"


def test_a_rotation_does_not_extend_the_old_key(desk: Desk) -> None:
    old = desk.key(ALICE, "alice", expires_ms=desk.now_ms() + 1_000).key
    desk.rotate(ALICE, old.id, desk.now_ms() + HOUR_MS)
    assert desk.area.show_key(ALICE, key_id=old.id).expires_ms == old.expires_ms


def test_an_access_key_signs_as_its_user(desk: Desk) -> None:
    made = desk.key(ALICE, "alice", KeyKind.ACCESS)
    signer = desk.authentication.signer(NOBODY, made.key.id)
    assert signer is not None
    assert (signer.secret, signer.session.user) == (made.secret, "alice")
    with pytest.raises(AuthenticationFailed):
        desk.login(made.secret)
    assert desk.authentication.signer(NOBODY, desk.key(ALICE, "alice").key.id) is None


def test_a_user_has_a_bounded_number_of_keys(desk: Desk) -> None:
    for _ in range(KEYS_PER_USER_MAX):
        desk.key(ALICE, "alice")
    with pytest.raises(LimitReached):
        desk.key(ALICE, "alice")
    with pytest.raises(LimitReached):
        desk.rotate(ALICE, desk.area.keys(ALICE, user="alice")[0].id)
    assert desk.key(BOB, "bob").key.user == "bob"


def test_disabling_and_deleting_a_user_ends_its_sessions(desk: Desk) -> None:
    made = desk.key(ALICE, "alice")
    sessions = [desk.login(made.secret), ALICE]
    assert all(map(desk.authentication.is_valid, sessions))
    desk.wait(desk.area.disable(ADMIN, user="alice"))
    assert not any(map(desk.authentication.is_valid, sessions))
    with pytest.raises(AuthenticationFailed):
        desk.login(made.secret)
    desk.wait(desk.area.disable(ADMIN, user="alice", is_disabled=False))
    assert all(map(desk.authentication.is_valid, sessions))
    desk.wait(desk.area.delete(ADMIN, user="alice"))
    assert not any(map(desk.authentication.is_valid, sessions))
    assert made.key.id not in desk.node.broker.identities.keys


def test_a_session_ends_when_its_user_comes_to_be_in_another_tenant(desk: Desk) -> None:
    """Clients with certificates need no user: the first one makes them clients of a tenant."""
    desk.wait(put_tenant(desk.node.broker, "acme"))
    desk.node.broker.gate.policy = Everything()
    identities = desk.node.broker.identities
    ended: list[str] = []
    for tenant in ("acme", ""):
        known = identities.users.get("CN=x")
        session = Session(
            "kafka",
            principal="User:CN=x",
            tenant="" if known is None else known.tenant,
            mechanism="certificate",
        )
        assert desk.authentication.is_valid(session)
        desk.authentication.watch(session, lambda tenant=tenant: ended.append(tenant))
        if known is None:
            desk.wait(desk.area.create(ROOT, user="CN=x", password=None, tenant=tenant))
        else:
            desk.wait(desk.area.delete(ROOT, user="CN=x"))
        assert not desk.authentication.is_valid(session)
    assert ended == ["acme", ""]


def test_jobs_write_nothing_for_users_that_may_not_act(desk: Desk) -> None:
    may_write = desk.node.broker.redrives.may_write
    desk.node.broker.gate.policy = Everything()
    started_by = pack_session(ALICE)
    expired = msgspec.structs.replace(ALICE, mechanism="bearer", key_id="gone", expires_ms=1)
    assert may_write(started_by, "orders")
    assert may_write(pack_session(expired), "orders"), "a job outlives the credentials"
    desk.wait(desk.area.disable(ADMIN, user="alice"))
    assert not may_write(started_by, "orders")
    desk.wait(desk.area.disable(ADMIN, user="alice", is_disabled=False))
    assert may_write(started_by, "orders")
    desk.wait(desk.area.delete(ADMIN, user="alice"))
    assert not may_write(started_by, "orders")
    assert not may_write(pack_session(expired), "orders")


@pytest.mark.parametrize("state", [TenantState.READ_ONLY, TenantState.SUSPENDED])
def test_jobs_write_nothing_for_a_tenant_that_may_not(desk: Desk, state: TenantState) -> None:
    acme = pack_session(Session("http", principal="User:CN=x", tenant="acme", is_inside=True))
    may_write = desk.node.broker.redrives.may_write
    desk.node.broker.gate.policy = Everything()
    desk.wait(put_tenant(desk.node.broker, "acme"))
    desk.wait(desk.area.create(ROOT, user="CN=x", password=None, tenant="acme"))
    assert may_write(acme, "~acme~orders")
    desk.wait(put_tenant(desk.node.broker, "acme", state))
    assert not may_write(acme, "~acme~orders")


def test_the_epoch_moves_with_users_and_keys_only(desk: Desk) -> None:
    changes: list[int] = []
    desk.authentication.on_change(lambda: changes.append(desk.authentication.epoch))
    made = desk.key(ALICE, "alice")
    desk.login(made.secret)
    desk.node.run_for(2 * COLLECT_MS)
    desk.node.broker.gate.policy = None
    desk.node.create("orders")
    assert len(changes) == 1
    desk.wait(desk.area.set_password(ALICE, user="alice", password=PASSWORD))
    desk.wait(desk.area.delete_key(ALICE, key_id=made.key.id))
    assert len(changes) == 3


def test_the_last_use_of_a_key_is_written_about_once_an_hour(desk: Desk) -> None:
    made = desk.key(ALICE, "alice")
    assert desk.area.show_key(ALICE, key_id=made.key.id).last_used_ms == 0
    log = desk.node.broker.identities._log
    desk.login(made.secret)
    first_ms = desk.now_ms()
    assert desk.area.show_key(ALICE, key_id=made.key.id).last_used_ms == first_ms
    desk.node.run_for(COLLECT_MS + 1)
    assert log.metadata.key_uses[made.key.id].last_used_ms == first_ms
    for _ in range(10):
        desk.login(made.secret)
        desk.node.run_for(COLLECT_MS)
    assert log.metadata.key_uses[made.key.id].last_used_ms == first_ms
    desk.node.run_for(WRITE_EVERY_MS)
    desk.login(made.secret)
    desk.node.run_for(2 * COLLECT_MS)
    assert log.metadata.key_uses[made.key.id].last_used_ms > first_ms
    desk.wait(desk.area.delete_key(ALICE, key_id=made.key.id))
    assert made.key.id not in log.metadata.key_uses


def test_the_last_use_survives_a_restart(desk: Desk) -> None:
    made = desk.key(ALICE, "alice")
    desk.login(made.secret)
    used_ms = desk.now_ms()
    desk.node.run_for(2 * COLLECT_MS)
    desk.node.restart_after_crash()
    assert desk.area.show_key(ALICE, key_id=made.key.id).last_used_ms == used_ms
    assert desk.login(made.secret).user == "alice"


def test_without_a_policy_everybody_manages_users(desk: Desk) -> None:
    desk.node.broker.gate.policy = None
    assert desk.create("eve", NOBODY)
    assert desk.key(NOBODY, "eve").key.user == "eve"


def test_whoami_shows_the_session(desk: Desk) -> None:
    assert desk.area.whoami(NOBODY).is_authenticated is False
    session = desk.login(desk.key(ALICE, "alice").secret)
    shown = desk.area.whoami(session)
    assert (shown.principal, shown.key_id) == ("User:alice", session.key_id)
    assert shown.is_super is False


def test_management_needs_alter_on_the_cluster(desk: Desk) -> None:
    desk.node.broker.gate.policy = Only((Action.ALTER, CLUSTER))
    assert desk.create("frank", BOB)
    with pytest.raises(GoQueueError):
        desk.area.show(BOB, user="frank")
