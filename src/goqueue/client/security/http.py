"""Credentials of HTTP requests: an API key, or a user and a password."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from goqueue.client.security.settings import Secret, TlsSettings, reveal
from goqueue.model.errors import InvalidRequest

API_KEY_VARIABLE: Final = "GOQUEUE_API_KEY"
USER_VARIABLE: Final = "GOQUEUE_USER"
PASSWORD_VARIABLE: Final = "GOQUEUE_PASSWORD"  # the name of a variable, not a password
CA_FILE_VARIABLE: Final = "GOQUEUE_CA_FILE"

ClientCertificate = str | tuple[str, str]  # a file with both, or the certificate and its key


@dataclass(frozen=True, slots=True)
class HttpLogin:
    """What a request is sent with: `Authorization: Bearer`, or basic authentication."""

    api_key: Secret = field(default="", repr=False)  # or another bearer token
    username: str = ""
    password: Secret = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.api_key and (self.username or self.password):
            raise InvalidRequest("Give an API key, or a user and a password, not both.")
        if bool(self.username) != bool(self.password):
            raise InvalidRequest("A user and a password belong together; give both.")
        if not self.api_key and not self.username:
            raise InvalidRequest("Give an API key, or a user and a password.")
        if ":" in self.username:
            raise InvalidRequest("A user name with a colon cannot be sent over HTTP.")

    def header(self) -> str:
        """Return the value of the header, with the secret as it is now."""
        if self.api_key:
            return f"Bearer {_checked(reveal(self.api_key))}"
        pair = f"{self.username}:{reveal(self.password)}".encode()
        return f"Basic {base64.b64encode(pair).decode('ascii')}"


def login_of(
    api_key: Secret | None, username: str | None, password: Secret | None
) -> HttpLogin | None:
    """Return the login that some arguments describe; None if none of them is given."""
    if not api_key and not username and not password:
        return None
    return HttpLogin(api_key or "", username or "", password or "")


def login_from(environ: Mapping[str, str]) -> HttpLogin | None:
    """Return the login of the environment, if it has one."""
    given = (environ.get(one) for one in (API_KEY_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE))
    try:
        return login_of(*given)
    except InvalidRequest as error:
        raise InvalidRequest(
            f"{error} (from {API_KEY_VARIABLE}, {USER_VARIABLE} and {PASSWORD_VARIABLE})"
        ) from None


def tls_of(ca_file: str | None, certificate: ClientCertificate | None) -> TlsSettings | None:
    """Return the TLS settings that some arguments describe; None if none of them is given."""
    if not ca_file and not certificate:
        return None
    both = (certificate, "") if isinstance(certificate, str) else certificate or ("", "")
    return TlsSettings(ca_file or "", both[0], both[1])


def split_login(address: str) -> tuple[str, HttpLogin | None]:
    """Take `user:password@` out of an address, so that it appears in no message."""
    scheme, separator, rest = address.rpartition("://")
    authority, slash, path = rest.partition("/")
    login, at, host = authority.rpartition("@")
    if not at:
        return address, None
    name, _, password = login.partition(":")
    return f"{scheme}{separator}{host}{slash}{path}", login_of("", unquote(name), unquote(password))


def _checked(token: str) -> str:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequest("The API key contains characters that no key has.")
    return token
