"""Credentials in the headers of requests, and the sessions that they give.

`Authorization: Basic` has a user and a password, `Authorization: Bearer` an API key or a token, and
`X-API-Key` an API key. They are never read from the address of a request, which ends up in logs.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from goqueue.loop.promise import Promise
from goqueue.model.errors import AuthenticationFailed, MalformedRequest
from goqueue.model.session import ConnectedClient, Session
from goqueue.wire.carrier.browsers import NAVIGATE, is_navigation

if TYPE_CHECKING:
    from goqueue.broker.gate.authentication import Authentication
    from goqueue.wire.carrier.calls import Request
    from goqueue.wire.carrier.routing import Operation

AUTHORIZATION = b"authorization"
API_KEY = b"x-api-key"
# A request with two of these means one thing to a proxy and perhaps another here.
ONCE = frozenset((b"host", b"origin", b"content-type", AUTHORIZATION, API_KEY))
CREDENTIAL_BYTES_MAX = 16 << 10  # tokens of large organisations have some kilobytes
_BASIC = b'www-authenticate: Basic realm="GoQueue", charset="UTF-8"\r\n'
_BEARER = b'www-authenticate: Bearer realm="GoQueue"\r\n'


def challenge(fetch_mode: bytes) -> bytes:
    """Return the headers that name the accepted schemes, for a mode in which browsers fetch.

    Programs choose Bearer, and browsers show a dialog for Basic. For a request of a script they
    must not, because its page asks for the credentials itself.
    """
    is_by_script = fetch_mode not in (b"", NAVIGATE)
    return _BEARER if is_by_script else _BASIC + _BEARER


class Password(NamedTuple):
    """A user and its password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Password(...)"


class Token(NamedTuple):
    """An API key or a token."""

    text: str

    def __repr__(self) -> str:
        return "Token(...)"


def read_credentials(authorization: bytes | None, api_key: bytes | None) -> Password | Token | None:
    """Return the credentials of a request; None without any. Raise if they cannot be read."""
    if api_key is not None:
        if authorization is not None:
            raise MalformedRequest("Send either Authorization or X-API-Key, not both.")
        return Token(_ascii(api_key))
    if authorization is None:
        return None
    scheme, _, rest = authorization.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return Token(_ascii(rest))
    if scheme.lower() == b"basic":
        return _basic(rest.strip())
    raise AuthenticationFailed("Authorization needs the scheme Basic or Bearer.")


def _ascii(value: bytes) -> str:
    text = value.strip()
    if not text or len(text) > CREDENTIAL_BYTES_MAX or not text.isascii():
        raise AuthenticationFailed
    return text.decode("ascii")


def _basic(value: bytes) -> Password:
    try:
        text = b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise AuthenticationFailed("The Basic credentials are not base64 of UTF-8.") from None
    user, colon, password = text.partition(":")
    if not colon or len(value) > CREDENTIAL_BYTES_MAX:
        raise AuthenticationFailed("The Basic credentials are not a user and a password.")
    return Password(user, password)


class Asking(Protocol):
    """A request, of which only the headers are needed."""

    @property
    def headers(self) -> Mapping[bytes, bytes]: ...


class Protected(Protocol):
    """What a request asks for, and whether that needs credentials."""

    @property
    def is_public(self) -> bool: ...

    @property
    def has_public_page(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def are_metrics(self) -> bool: ...


class Authenticator(Protocol):
    """Gives each request of a connection its session."""

    def session_of(self, request: Request, operation: Operation) -> Session | Promise[Session]:
        """Return the session of a request, perhaps later; raise if it may have none."""


def first_session(authentication: Authentication, first: Session, *, is_enough: bool) -> Session:
    """Return the session of a connection for a request without credentials, if that is enough.

    That of a client certificate is, as long as its user is not disabled.
    """
    if first.is_authenticated:
        if not authentication.is_valid(first):
            raise AuthenticationFailed("The user of the client certificate may not use it.")
    elif not is_enough:
        raise authentication.missing(first)
    return first


class HeaderAuthenticator:
    """The sessions of a connection, by the credentials that its requests send.

    A client sends the same credentials with every request. They are checked at the first one, and
    again when a user or a key has changed.
    """

    __slots__ = (
        "_api_key",
        "_are_metrics_open",
        "_authentication",
        "_authorization",
        "_epoch",
        "_first",
        "_is_open",
        "_must",
        "_session",
    )

    def __init__(
        self,
        authentication: Authentication,
        client: ConnectedClient,
        first: Session,
        *,
        is_open: bool,
        are_metrics_open: bool = False,
    ) -> None:
        """`first` is the session of the connection; with `is_open`, health needs no credentials.

        With `are_metrics_open` metrics need none, but those that are sent are checked.
        """
        self._authentication = authentication
        self._first = first
        self._must = client.rules.must_authenticate
        self._is_open = is_open
        self._are_metrics_open = are_metrics_open
        self._authorization: bytes | None = None
        self._api_key: bytes | None = None
        self._session: Session | None = None  # of the last credentials
        self._epoch = 0

    def session_of(self, request: Asking, operation: Protected) -> Session | Promise[Session]:
        """Return the session of a request: at once if its credentials are those of the last one."""
        if operation.is_public or (operation.is_open and self._is_open):
            return self._first
        if operation.has_public_page and is_navigation(request.headers):
            return self._first
        authorization = request.headers.get(AUTHORIZATION)
        api_key = request.headers.get(API_KEY)
        if authorization is None and api_key is None:
            if operation.are_metrics and self._are_metrics_open:
                return self._first
            return first_session(self._authentication, self._first, is_enough=not self._must)
        if (
            self._session is not None
            and authorization == self._authorization
            and api_key == self._api_key
            and self._is_current(self._session)
        ):
            return self._session
        return self._check(authorization, api_key)

    def _is_current(self, session: Session) -> bool:
        authentication = self._authentication
        if self._epoch != authentication.epoch:
            return False
        return not session.expires_ms or authentication.is_valid(session)

    def _check(self, authorization: bytes | None, api_key: bytes | None) -> Promise[Session]:
        given = read_credentials(authorization, api_key)
        assert given is not None
        self._session = None
        epoch = self._authentication.epoch
        if isinstance(given, Password):
            checked = self._authentication.password(self._first, *given)
        else:
            checked = self._authentication.bearer(self._first, given.text)

        def remember(session: Session | None, _: Exception | None) -> None:
            # A user or key that changed during the check leaves an epoch that has passed.
            self._session, self._epoch = session, epoch
            self._authorization, self._api_key = authorization, api_key

        checked.then(remember)
        return checked
