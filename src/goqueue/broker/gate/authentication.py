"""Establishes who a client is.

A front end starts with the session of a new connection, which is anonymous or that of a client
certificate. When the client sends credentials, it gets a session with a principal, and uses that
from then on. Failures are counted, and a client that fails too often has to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from goqueue.loop.promise import Promise, promised
from goqueue.model.credentials import KeyKind, ScramMechanism
from goqueue.model.errors import AuthenticationFailed, GoQueueError, TooManyFailures
from goqueue.model.observer import interested
from goqueue.model.session import NEVER_MS, ConnectedClient, Session, principal_of
from goqueue.tenancy import keys
from goqueue.tenancy.failures import Failures
from goqueue.tenancy.scram import NONCE_BYTES, ScramConversation

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

BASIC = "password"
BEARER = "bearer"
SIGNATURE = "signature"
_OF_USERS = frozenset((BASIC, *ScramMechanism))  # mechanisms whose users are in the metadata


class Signer(NamedTuple):
    """The holder of an access key: the secret its requests are signed with, and its session."""

    secret: str
    session: Session


class Authentication:
    """Turns credentials into sessions."""

    def __init__(self, broker: Broker) -> None:
        self._clock = broker.clock
        self._random = broker.random
        self._identities = broker.identities
        self._failures = Failures()
        self._observer = interested(broker.observer, ("authenticated",))

    def session(self, client: ConnectedClient) -> Session:
        """Return the session of a new connection."""
        return Session(client.rules.name, client_host=client.host)

    def password(self, session: Session, name: str, password: str) -> Promise[Session]:
        """Check a user and its password, or the id of an API key and the key."""
        return promised(self._password(session, name, password))

    async def _password(self, session: Session, name: str, password: str) -> Session:
        if password.startswith(keys.API_PREFIX):
            return self.api_key(session, password)
        self._check_wait(session, name, BASIC)
        if not await self._identities.check_password(name, password):
            self._failed(session, name, BASIC)
        return self._succeeded(session, name, BASIC)

    def bearer(self, session: Session, token: str) -> Promise[Session]:
        """Check a bearer token: an API key."""
        return promised(self._bearer(session, token))

    async def _bearer(self, session: Session, token: str) -> Session:
        return self.api_key(session, token)

    def api_key(self, session: Session, text: str) -> Session:
        """Check an API key; raise unless it is valid."""
        given = keys.read_api_key(text)
        name = "" if given is None else given.id
        self._check_wait(session, name, BEARER)
        key = None if given is None else self._identities.key(given.id, KeyKind.API)
        if given is None or key is None or not keys.is_secret(key, given.secret):
            self._failed(session, name, BEARER)
        assert key is not None
        self._identities.key_uses.note(key.id)
        made = self._succeeded(session, key.user, BEARER, expires_ms=key.expires_ms)
        return msgspec.structs.replace(made, key_id=key.id)

    def scram(self, session: Session, mechanism: ScramMechanism) -> ScramLogin:
        """Begin a conversation in which the client proves that it knows a password."""
        return ScramLogin(self, session, self._conversation(mechanism))

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
        self._check_wait(session, key_id, SIGNATURE)
        key = self._identities.key(key_id, KeyKind.ACCESS)
        secret = self._identities.access_secret(key_id)
        if key is None or secret is None:
            return None
        made = self._session_of(session, key.user, SIGNATURE, key.expires_ms)
        return Signer(secret, msgspec.structs.replace(made, key_id=key_id))

    def configured_signer(self, session: Session, key_id: str, secret: str) -> Signer:
        """Return who signs with a key of the settings: the user of that name."""
        self._check_wait(session, key_id, SIGNATURE)
        return Signer(secret, self._session_of(session, key_id, SIGNATURE, NEVER_MS))

    def signed(self, session: Session) -> None:
        """Note that a signature was valid; `session` is that of the signer."""
        if session.key_id:
            self._identities.key_uses.note(session.key_id)

    def signature_failed(self, session: Session, key_id: str) -> NoReturn:
        """Count a signature that was not valid; raise what a client may know of it."""
        self._failed(session, key_id, SIGNATURE)

    # Validity

    @property
    def epoch(self) -> int:
        """A number that moves when a user or a key changes; then sessions may have ended."""
        return self._identities.epoch

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a user or a key has changed."""
        self._identities.on_change(changed)

    def is_valid(self, session: Session) -> bool:
        """Return whether a session may go on: its user, its key and its time have not ended.

        Users of certificates and tokens need not exist here, but may be disabled.
        """
        if session.expires_ms and self._clock.wall_ms() >= session.expires_ms:
            return False
        known = self._identities.users.get(session.user)
        if known is not None and known.is_disabled:
            return False
        if session.key_id:
            fact = self._identities.keys.get(session.key_id)
            return fact is not None and not fact.value.is_expired(self._clock.wall_ms())
        return known is not None or session.mechanism not in _OF_USERS

    # Failures

    def _check_wait(self, session: Session, name: str, mechanism: str) -> None:
        now_ms = self._clock.now_ms()
        wait_ms = self._failures.wait_ms(session.client_host, name, now_ms=now_ms)
        if wait_ms:
            self._refuse(session, name, mechanism, TooManyFailures(wait_ms))

    def _failed(self, session: Session, name: str, mechanism: str) -> NoReturn:
        self._failures.failed(session.client_host, name, now_ms=self._clock.now_ms())
        self._refuse(session, name, mechanism, AuthenticationFailed())

    def _refuse(self, session: Session, name: str, mechanism: str, error: GoQueueError) -> NoReturn:
        if self._observer is not None:
            self._observer.authenticated(session, name, mechanism=mechanism, error=error)
        raise error

    def _succeeded(
        self, session: Session, user: str, mechanism: str, *, expires_ms: int = NEVER_MS
    ) -> Session:
        self._failures.succeeded(session.client_host, user)
        if self._observer is not None:
            self._observer.authenticated(session, user, mechanism=mechanism, error=None)
        return self._session_of(session, user, mechanism, expires_ms)

    def _session_of(self, session: Session, user: str, mechanism: str, expires_ms: int) -> Session:
        known = self._identities.users.get(user)
        return msgspec.structs.replace(
            session,
            principal=principal_of(user),
            tenant="" if known is None else known.tenant,
            mechanism=mechanism,
            expires_ms=expires_ms,
        )


class ScramLogin:
    """A client that is proving that it knows a password."""

    def __init__(
        self, owner: Authentication, session: Session, conversation: ScramConversation
    ) -> None:
        self._owner = owner
        self._session = session
        self._conversation = conversation
        self._is_begun = False
        self.session: Session | None = None  # once the client has proved who it is

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message of the client; raise if it cannot be who it says."""
        conversation, owner = self._conversation, self._owner
        try:
            answer = conversation.answer(message)
        except AuthenticationFailed:
            owner._failed(self._session, conversation.user, conversation.name)
        if not self._is_begun:
            self._is_begun = True
            owner._check_wait(self._session, conversation.user, conversation.name)
        if conversation.is_done:
            self.session = owner._succeeded(self._session, conversation.user, conversation.name)
        return answer
