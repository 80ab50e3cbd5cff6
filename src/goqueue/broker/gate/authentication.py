"""Establishes who a client is.

A front end starts with the session of a new connection, which is anonymous or that of a client
certificate. When the client sends credentials, it gets a session with a principal, and uses that
from then on. Failures are counted, and a client that fails too often has to wait.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from goqueue.broker.gate.logins import BearerLogin, Login, PlainLogin, ScramLogin
from goqueue.broker.identities.tokens import TokensUnavailable
from goqueue.loop.promise import Promise, promised
from goqueue.model.credentials import KeyKind, ScramMechanism
from goqueue.model.errors import (
    AuthenticationFailed,
    AuthenticationRequired,
    GoQueueError,
    TooManyFailures,
)
from goqueue.model.observer import interested
from goqueue.model.session import NEVER_MS, ConnectedClient, Session, principal_of
from goqueue.tenancy import keys, sasl
from goqueue.tenancy.certificates import name_of, read_certificate
from goqueue.tenancy.failures import Failures
from goqueue.tenancy.scram import NONCE_BYTES, ScramConversation
from goqueue.tenancy.tokens import UnknownTokenKey

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker
    from goqueue.cluster.identity_facts import UserFact

BASIC = "password"
BEARER = "bearer"
SIGNATURE = "signature"
TOKEN = "token"  # of another issuer; its user need not be in the metadata
CERTIFICATE = "certificate"
ACCESS_KEY_PREFIX = keys.ACCESS_PREFIX  # of the ids of access keys that a cluster has made
EXPIRY_CHECK_MS = 3_600_000  # at least so often, because the wall time may be set
UNKNOWN_KEY = (
    "The token is signed with a key that is not known here; if the issuer has just begun to use "
    "it, try again in a minute."
)
WARNED_MAX = 1_000  # users about whom the log warns
_EXTERNAL = frozenset((TOKEN, CERTIFICATE))  # mechanisms whose users need not be there
_OF_USERS = frozenset((BASIC, *ScramMechanism))  # mechanisms whose users are in the metadata

_log = logging.getLogger(__name__)


class Signer(NamedTuple):
    """The holder of an access key: the secret its requests are signed with, and its session."""

    secret: str
    session: Session


class Watch:
    """A session that lasts longer than a request, and what to do when it must end."""

    __slots__ = ("_owner", "ended", "session")

    def __init__(self, owner: Authentication, session: Session, ended: Callable[[], None]) -> None:
        self._owner = owner
        self.session = session
        self.ended = ended

    def cancel(self) -> None:
        self._owner.unwatch(self)


class Authentication:
    """Turns credentials into sessions. The gates of a node share it."""

    def __init__(self, broker: Broker) -> None:
        self._clock = broker.clock
        self._random = broker.random
        self._identities = broker.identities
        self._failures = Failures()
        self._observer = interested(broker.observer, ("authenticated",))
        self._watched: dict[str, set[Watch]] = {}  # by principal and by the id of the key
        self._warned: set[str] = set()  # users that clients with certificates or tokens are not
        self._identities.on_change(self._changed)
        self._principal_rules = broker.settings.security.tls_principal_rules

    def session(self, client: ConnectedClient) -> Session:
        """Return the session of a new connection.

        Raises AuthenticationFailed if the client has a certificate that gives it no name.
        """
        session = Session(client.rules.name, client_host=client.host)
        return session if not client.certificate else self._certified(session, client)

    def _certified(self, session: Session, client: ConnectedClient) -> Session:
        """Return the session of a client with a certificate, which TLS has verified.

        The certificate is the identity of the client unless its listener asks for other
        credentials, as in Kafka.
        """
        subject, expires_ms = read_certificate(client.certificate)
        session = msgspec.structs.replace(session, tls_identity=subject)
        if not client.rules.uses_certificates:
            return session
        name = name_of(subject, self._principal_rules) or ""
        error = self._unusable(subject, name)
        self._observe(session, name, CERTIFICATE, error)
        if error is not None:
            raise error
        return self._session_of(session, name, CERTIFICATE, expires_ms)

    def _unusable(self, subject: str, name: str) -> AuthenticationFailed | None:
        """Return why the name of a certificate cannot be used; None if it can."""
        if not name:
            return AuthenticationFailed(
                f"The subject {subject!r} matches no rule of security.tls_principal_rules."
            )
        known = self._identities.external(name)
        if known is not None and known.is_disabled:
            return AuthenticationFailed(f"The user {name!r} is disabled.")
        return None

    def password(self, session: Session, name: str, password: str) -> Promise[Session]:
        """Check a user and its password, or an API key, which is given with any name."""
        return promised(self._password(session, name, password))

    async def _password(self, session: Session, name: str, password: str) -> Session:
        if password.startswith(keys.API_PREFIX):
            return self.api_key(session, password)
        self.check_wait(session, name, BASIC)
        is_right = await self._identities.check_password(
            name, password, admit=lambda: self.check_wait(session, name, BASIC)
        )
        if not is_right:
            self.failed(session, name, BASIC)
        return self.succeeded(session, name, BASIC)

    def bearer(self, session: Session, token: str) -> Promise[Session]:
        """Check a bearer token: an API key, or a token of the issuer in the settings."""
        return promised(self._bearer(session, token))

    async def _bearer(self, session: Session, token: str) -> Session:
        tokens = self._identities.tokens
        if not tokens.accepts(token):
            return self.api_key(session, token)
        name = tokens.subject_of(token)
        self.check_wait(session, name, TOKEN)
        try:
            owner = await self._identities.check_token(token)
        except TokensUnavailable as error:
            self._refuse(session, name, TOKEN, AuthenticationFailed(str(error)))
        except UnknownTokenKey:
            # Nobody is blamed for a token of a key that the issuer has just begun to use.
            self._refuse(session, name, TOKEN, AuthenticationFailed(UNKNOWN_KEY))
        except AuthenticationFailed:
            self.failed(session, name, TOKEN)
        self._failures.succeeded(session.client_host, name)
        self._observe(session, owner.user, TOKEN)
        return self._session_of(session, owner.user, TOKEN, owner.expires_ms)

    def api_key(self, session: Session, text: str) -> Session:
        """Check an API key; raise unless it is valid."""
        given = keys.read_api_key(text)
        name = "" if given is None else given.id
        self.check_wait(session, name, BEARER)
        key = None if given is None else self._identities.key(given.id, KeyKind.API)
        if given is None or key is None or not keys.is_secret(key, given.secret):
            self.failed(session, name, BEARER)
        self._failures.succeeded(session.client_host, name)
        self._observe(session, key.user, BEARER)
        self._identities.key_uses.note(key.id)
        return self._session_of(session, key.user, BEARER, key.expires_ms, key.id)

    def login(self, session: Session, mechanism: str) -> Login:
        """Begin an exchange of SASL messages."""
        if mechanism == sasl.PLAIN:
            return PlainLogin(self, session)
        if mechanism == sasl.OAUTHBEARER:
            return BearerLogin(self, session)
        return ScramLogin(self, session, self._conversation(ScramMechanism(mechanism)))

    def _conversation(self, mechanism: ScramMechanism) -> ScramConversation:
        return ScramConversation(
            mechanism,
            lambda user: self._identities.verifier(user, mechanism),
            nonce=self._random.randbytes(NONCE_BYTES),
            salt_secret=self._identities.made_up_salt_secret(),
        )

    def signer(self, session: Session, key_id: str) -> Signer | None:
        """Return who signs with an access key; None if it is not valid.

        The caller verifies a signature and then reports `signed` or `signature_failed`.
        """
        self.check_wait(session, key_id, SIGNATURE)
        key = self._identities.key(key_id, KeyKind.ACCESS)
        secret = self._identities.access_secret(key_id)
        if key is None or secret is None:
            return None
        made = self._session_of(session, key.user, SIGNATURE, key.expires_ms, key.id)
        return Signer(secret, made)

    def configured_signer(self, session: Session, key_id: str, secret: str) -> Signer | None:
        """Return who signs with a key of the settings: the user of that name; None if disabled."""
        self.check_wait(session, key_id, SIGNATURE)
        made = self._session_of(session, key_id, SIGNATURE, NEVER_MS)
        return Signer(secret, made) if self.may_act(made) else None

    def signed(self, session: Session) -> None:
        """Note that a signature was valid; `session` is that of the signer."""
        self._observe(session, session.user, SIGNATURE)
        if session.key_id:
            self._identities.key_uses.note(session.key_id)

    def signature_failed(self, session: Session, key_id: str) -> NoReturn:
        """Count a signature that was not valid; raise what a client may know of it."""
        self.failed(session, key_id, SIGNATURE)

    # Validity

    @property
    def epoch(self) -> int:
        """A number that moves when a user or a key changes; then sessions may have ended."""
        return self._identities.epoch

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a user or a key has changed."""
        self._identities.on_change(lambda users, key_ids: changed())

    def is_valid(self, session: Session) -> bool:
        """Return whether a session may go on: its user, its key and its time have not ended.

        Users of certificates and tokens need not exist here, but may be disabled.
        """
        if session.expires_ms and self._clock.wall_ms() >= session.expires_ms:
            return False
        if not self.may_act(session):
            return False
        if not session.key_id:
            return True
        fact = self._identities.keys.get(session.key_id)
        return fact is not None and not fact.value.is_expired(self._clock.wall_ms())

    def may_act(self, session: Session) -> bool:
        """Return whether the user of a session may act, whatever has become of its credentials.

        So it is for jobs, which go on after the session that has started them. A user that was
        created, or created again, in another tenant since is not the one of the session.
        """
        known = self._known(session.user, session.mechanism)
        if known is None:
            is_of_user = session.mechanism in _OF_USERS or session.key_id or session.tenant
            return not is_of_user
        return not known.is_disabled and known.tenant == session.tenant

    def _known(self, user: str, mechanism: str) -> UserFact | None:
        """Return the user of a name for a client that authenticates by some mechanism."""
        if mechanism in _EXTERNAL:
            return self._identities.external(user)
        return self._identities.users.get(user)

    # Outcomes

    def check_wait(self, session: Session, name: str, mechanism: str) -> None:
        """Raise if a client has failed too often, and has to wait."""
        now_ms = self._clock.now_ms()
        wait_ms = self._failures.wait_ms(session.client_host, name, now_ms=now_ms)
        if wait_ms:
            self._refuse(session, name, mechanism, TooManyFailures(wait_ms))

    def missing(self, session: Session) -> AuthenticationRequired:
        """Return the error for a request without credentials that needs some, and report it."""
        error = AuthenticationRequired()
        self._observe(session, "", "", error)
        return error

    def failed(self, session: Session, name: str, mechanism: str) -> NoReturn:
        """Count a failure, and raise."""
        self._failures.failed(session.client_host, name, now_ms=self._clock.now_ms())
        self._refuse(session, name, mechanism, AuthenticationFailed())

    def _refuse(self, session: Session, name: str, mechanism: str, error: GoQueueError) -> NoReturn:
        self._observe(session, name, mechanism, error)
        raise error

    def _observe(
        self, session: Session, user: str, mechanism: str, error: GoQueueError | None = None
    ) -> None:
        if self._observer is None:
            return
        known = self._known(user, mechanism)
        if known is not None and known.tenant:
            session = msgspec.structs.replace(session, tenant=known.tenant)
        self._observer.authenticated(session, user, mechanism=mechanism, error=error)

    def succeeded(self, session: Session, user: str, mechanism: str) -> Session:
        """Return the session of a user with a password, unless it was just deleted or disabled."""
        known = self._identities.users.get(user)
        if known is None or known.is_disabled:
            self.failed(session, user, mechanism)
        self._failures.succeeded(session.client_host, user)
        self._observe(session, user, mechanism)
        return self._session_of(session, user, mechanism)

    def _session_of(
        self,
        session: Session,
        user: str,
        mechanism: str,
        expires_ms: int = NEVER_MS,
        key_id: str = "",
    ) -> Session:
        known = self._known(user, mechanism)
        if known is None and mechanism in _EXTERNAL:
            self._warn_of_password(user, mechanism)
        return msgspec.structs.replace(
            session,
            principal=principal_of(user),
            tenant="" if known is None else known.tenant,
            mechanism=mechanism,
            expires_ms=expires_ms,
            key_id=key_id,
        )

    def _warn_of_password(self, name: str, mechanism: str) -> None:
        """Log, once for each user, that a client of its name is not this user, and the remedy."""
        known = self._identities.users.get(name)
        if known is None or name in self._warned or len(self._warned) >= WARNED_MAX:
            return
        self._warned.add(name)
        _log.warning(
            "a client with a %s in the name of %r is in the default tenant, because the user %r of "
            "the tenant %r has a password; if they are the same, an operator must remove it: "
            "kafka-configs --alter --entity-type users --entity-name %s --delete-config '%s'",
            mechanism,
            name,
            name,
            known.tenant,
            shlex.quote(name),
            ",".join(one.mechanism for one in known.verifiers),
        )

    # Sessions that must end

    def watch(self, session: Session, ended: Callable[[], None]) -> Watch:
        """Call `ended` when the user or the key of a session is deleted or disabled."""
        watch = Watch(self, session, ended)
        for name in _watched_names(session):
            self._watched.setdefault(name, set()).add(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        for name in _watched_names(watch.session):
            watches = self._watched.get(name, set())
            watches.discard(watch)
            if not watches:
                self._watched.pop(name, None)

    def _changed(self, users: set[str], key_ids: set[str]) -> None:
        self._warned -= users
        if not self._watched:
            return
        names = {*map(principal_of, users), *key_ids}
        affected = {watch for name in names for watch in self._watched.get(name, ())}
        for watch in affected:
            if not self.is_valid(watch.session):
                self.unwatch(watch)
                watch.ended()
        for key_id in key_ids:
            self._await_expiry(key_id)

    def _await_expiry(self, key_id: str) -> None:
        """End the sessions of a key when it expires, because a rotation has given it an expiry."""
        fact = self._identities.keys.get(key_id)
        if fact is None or not fact.value.expires_ms or key_id not in self._watched:
            return
        left_ms = max(1, fact.value.expires_ms - self._clock.wall_ms())
        self._clock.call_later(
            min(left_ms, EXPIRY_CHECK_MS), lambda: self._changed(set(), {key_id})
        )


def _watched_names(session: Session) -> tuple[str, ...]:
    return (session.principal, session.key_id) if session.key_id else (session.principal,)
