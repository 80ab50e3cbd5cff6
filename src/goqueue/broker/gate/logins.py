"""Exchanges of SASL messages, in which a client authenticates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from goqueue.model.errors import AuthenticationFailed
from goqueue.model.session import Session
from goqueue.tenancy import sasl
from goqueue.tenancy.scram import OTHER_IDENTITY, ScramConversation

if TYPE_CHECKING:
    from goqueue.broker.gate.authentication import Authentication


class Login(Protocol):
    """A client that is authenticating, with one mechanism."""

    session: Session | None  # once the client has proved who it is

    async def answer(self, message: bytes) -> bytes:
        """Return the answer to a message of the client; raise if it cannot be who it says."""


class PlainLogin:
    """A client that sends its password."""

    def __init__(self, owner: Authentication, session: Session) -> None:
        self._owner = owner
        self._session = session
        self.session: Session | None = None

    async def answer(self, message: bytes) -> bytes:
        given = sasl.read_plain(message)
        self.session = await self._owner.password(self._session, given.user, given.password)
        return b""


class BearerLogin:
    """A client that sends a token. An error is described to it first, as RFC 7628 requires."""

    def __init__(self, owner: Authentication, session: Session) -> None:
        self._owner = owner
        self._session = session
        self._error: AuthenticationFailed | None = None
        self.session: Session | None = None

    async def answer(self, message: bytes) -> bytes:
        if self._error is not None:
            raise self._error
        given = sasl.read_bearer(message)
        try:
            session = await self._owner.bearer(self._session, given.token)
            if given.identity not in ("", session.user):
                raise AuthenticationFailed(OTHER_IDENTITY)
        except AuthenticationFailed as error:
            self._error = error
            return sasl.invalid_token()
        self.session = session
        return b""


class ScramLogin:
    """A client that is proving that it knows a password."""

    def __init__(
        self, owner: Authentication, session: Session, conversation: ScramConversation
    ) -> None:
        self._owner = owner
        self._session = session
        self._conversation = conversation
        self.session: Session | None = None

    async def answer(self, message: bytes) -> bytes:
        conversation, owner = self._conversation, self._owner
        if conversation.user:
            # Others may have failed in the meantime: guesses are not made in parallel.
            owner.check_wait(self._session, conversation.user, conversation.name)
        try:
            answer = conversation.answer(message)
        except AuthenticationFailed:
            owner.failed(self._session, conversation.user, conversation.name)
        if conversation.is_done:
            self.session = owner.succeeded(self._session, conversation.user, conversation.name)
        else:
            owner.check_wait(self._session, conversation.user, conversation.name)
        return answer
