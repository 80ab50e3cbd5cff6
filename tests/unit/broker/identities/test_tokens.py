"""Keys of tokens: when they are loaded, and what happens when they cannot be."""

from __future__ import annotations

import pytest

from goqueue.broker.identities.tokens import RETRY_MS, UNKNOWN_KEY_MS
from goqueue.loop.promise import Promise, promised
from goqueue.model.access import Action, Resource
from goqueue.model.credentials import ScramMechanism
from goqueue.model.errors import AuthenticationFailed, InvalidRequest
from goqueue.model.session import Session
from tests.unit.broker.gate.areas.policies import Only
from tests.unit.broker.node import Node
from tests.unit.broker.tenants import put_tenant
from tests.unit.tenancy.token_issuer import AUDIENCE, ISSUER, key_set, token

SETTINGS = {
    "security__oauth_issuer": ISSUER,
    "security__oauth_audience": AUDIENCE,
    "security__oauth_jwks": "/keys.json",
    "security__super_users": "User:root",
}
HOUR_MS = 3_600_000


class Everything(Only):
    """Allows everything to everybody."""

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return True


class Verifying:
    """A node that loads the keys of an issuer, which may change or be unreachable."""

    def __init__(self) -> None:
        self.node = Node(**SETTINGS)
        self.kinds: tuple[str, ...] = ("ES256",)
        self.is_down = False
        self.loads = 0
        self.tokens = self.node.broker.identities.tokens

    def start(self) -> None:
        self.tokens.load_with(self._load)

    def _load(self) -> bytes:
        self.loads += 1
        if self.is_down:
            raise OSError("connection refused")
        return key_set(*self.kinds)

    def token(self, kind: str = "ES256", *, seconds: int = 600) -> str:
        now = self.node.broker.clock.wall_ms() // 1000
        algorithm = kind.partition("-")[0]
        return token(kind, alg=algorithm, iat=now, exp=now + seconds)

    def bearer(self, text: str) -> Promise[Session]:
        session = Session("kafka", client_host="192.0.2.1")
        return self.node.broker.gate.authentication.bearer(session, text)

    def accepts(self, text: str) -> bool:
        try:
            return self.node.wait(self.bearer(text)).principal == "User:ada"
        except AuthenticationFailed:
            return False


@pytest.fixture
def verifying() -> Verifying:
    return Verifying()


def test_tokens_are_refused_without_an_issuer(verifying: Verifying) -> None:
    assert not verifying.accepts(verifying.token())


def test_the_session_ends_with_the_token(verifying: Verifying) -> None:
    verifying.start()
    session = verifying.node.wait(verifying.bearer(verifying.token()))
    assert (session.principal, session.mechanism, session.tenant) == ("User:ada", "token", "")
    assert 0 < session.expires_ms - verifying.node.broker.clock.wall_ms() <= 630_000


def test_the_first_client_waits_for_the_keys(verifying: Verifying) -> None:
    verifying.start()
    waiting = verifying.bearer(verifying.token())
    assert not waiting.is_done
    assert verifying.node.wait(waiting).is_authenticated
    assert verifying.loads == 1


def test_keys_are_loaded_again_after_an_hour(verifying: Verifying) -> None:
    verifying.start()
    assert verifying.accepts(verifying.token())
    verifying.kinds = ("ES256-next",)
    verifying.node.run_for(HOUR_MS)
    # The keys known before are used while the new ones are loaded.
    assert verifying.accepts(verifying.token())
    verifying.node.run_for(100)
    assert verifying.loads == 2
    assert not verifying.accepts(verifying.token())
    assert verifying.accepts(verifying.token("ES256-next"))


def test_an_unknown_key_is_looked_for_at_most_once_a_minute(verifying: Verifying) -> None:
    verifying.start()
    assert verifying.accepts(verifying.token())
    verifying.node.run_for(UNKNOWN_KEY_MS)
    verifying.kinds = ("ES256", "ES256-next")
    assert verifying.accepts(verifying.token("ES256-next"))
    assert verifying.loads == 2
    for _ in range(20):
        assert not verifying.accepts(verifying.token("ES256-never"))
    assert verifying.loads == 2


def test_an_issuer_that_is_down_does_not_matter_to_those_who_have_its_keys(
    verifying: Verifying,
) -> None:
    verifying.start()
    assert verifying.accepts(verifying.token())
    verifying.is_down = True
    for _ in range(3):
        verifying.node.run_for(HOUR_MS)
        assert verifying.accepts(verifying.token())
    assert verifying.loads >= 3


def test_loading_is_tried_again_after_a_failure(verifying: Verifying) -> None:
    verifying.is_down = True
    verifying.start()
    assert not verifying.accepts(verifying.token())
    assert verifying.loads == 1
    verifying.is_down = False
    verifying.node.run_for(RETRY_MS)
    assert verifying.accepts(verifying.token())


def test_clients_are_not_blamed_for_an_issuer_that_is_down(verifying: Verifying) -> None:
    verifying.is_down = True
    verifying.start()
    for _ in range(10):
        with pytest.raises(AuthenticationFailed, match="cannot be verified now"):
            verifying.node.wait(verifying.bearer(verifying.token()))
    verifying.is_down = False
    verifying.node.run_for(RETRY_MS)
    assert verifying.accepts(verifying.token())


def test_a_known_token_is_not_verified_again_but_ends_in_time(verifying: Verifying) -> None:
    verifying.start()
    text = verifying.token(seconds=10)
    assert verifying.accepts(text)
    assert verifying.bearer(text).is_done
    verifying.node.run_for(40_000)
    assert not verifying.accepts(text)


def test_a_disabled_user_is_refused_with_a_token_too(verifying: Verifying) -> None:
    identities = verifying.node.broker.identities
    verifying.node.wait(promised(identities.create_user("ada", None, tenant="")))
    verifying.start()
    assert verifying.accepts(verifying.token())
    verifying.node.wait(promised(identities.disable_user("ada", is_disabled=True)))
    assert not verifying.accepts(verifying.token())


def test_an_issuer_that_changes_its_key_locks_nobody_out(verifying: Verifying) -> None:
    verifying.start()
    assert verifying.accepts(verifying.token())
    verifying.kinds = ("ES256", "ES256-next")
    for _ in range(60):
        with pytest.raises(AuthenticationFailed, match="try again in a minute"):
            verifying.node.wait(verifying.bearer(verifying.token("ES256-next")))
    assert verifying.accepts(verifying.token())
    verifying.node.run_for(UNKNOWN_KEY_MS)
    assert verifying.accepts(verifying.token("ES256-next"))


def test_a_token_is_not_for_a_user_with_a_password_in_a_tenant(verifying: Verifying) -> None:
    """Its administrator has made that user, and anybody's token must not lead into the tenant."""
    node = verifying.node
    node.wait(put_tenant(node.broker, "acme"))
    verifying.start()
    session = node.wait(verifying.bearer(verifying.token()))
    ended: list[str] = []
    authentication = node.broker.gate.authentication
    authentication.watch(session, lambda: ended.append("ada"))
    identities = node.broker.identities
    node.wait(promised(identities.create_user("ada", "correct horse", tenant="acme")))
    assert node.wait(verifying.bearer(verifying.token())).tenant == ""
    assert authentication.is_valid(session)
    assert not ended
    node.wait(promised(identities.delete_user("ada")))
    node.wait(promised(identities.create_user("ada", None, tenant="acme")))
    assert node.wait(verifying.bearer(verifying.token())).tenant == "acme"
    assert ended == ["ada"]


def test_a_tenant_cannot_draw_identities_of_others_into_it(verifying: Verifying) -> None:
    node = verifying.node
    node.wait(put_tenant(node.broker, "acme"))
    node.broker.gate.policy = Everything()
    admin = Session("http", principal="User:boss", tenant="acme")
    users = node.broker.gate.users
    with pytest.raises(InvalidRequest, match="needs a password"):
        node.wait(users.create(admin, user="ada", password=None))
    node.wait(users.create(admin, user="ada", password="correct horse"))
    remove = users.alter_scram_verifiers(
        admin, user="ada", changed=(), removed=tuple(ScramMechanism)
    )
    with pytest.raises(InvalidRequest, match="password"):
        node.wait(remove)
    verifying.start()
    assert node.wait(verifying.bearer(verifying.token())).tenant == ""
    operator = Session("http", principal="User:root")
    node.wait(users.create(operator, user="eve", password=None, tenant="acme"))


def test_expired_tokens_of_one_user_do_not_lock_out_another(verifying: Verifying) -> None:
    verifying.start()
    now = verifying.node.broker.clock.wall_ms() // 1000
    for _ in range(8):
        assert not verifying.accepts(token(sub="bob", exp=now - 100, iat=now - 200))
    assert verifying.accepts(verifying.token())
