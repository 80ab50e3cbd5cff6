"""Settings of a client of the HTTP API: address, timeouts, retries, credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from goqueue.client.addresses import Address
from goqueue.client.security.http import (
    CA_FILE_VARIABLE,
    ClientCertificate,
    HttpLogin,
    login_from,
    login_of,
    split_login,
    tls_of,
)
from goqueue.client.security.settings import Secret, TlsSettings
from goqueue.model.errors import InvalidRequest

ADDRESS_DEFAULT = "127.0.0.1:8080"
PORT_DEFAULT = 8080
_SCHEMES = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How often a request is retried, and after which waits.

    A request that was certainly not executed (no connection, 429, 503) is always retried. If a
    response is lost, it is unknown whether the request was executed: idempotent requests are
    repeated, publishes only if `repeats_publishes` accepts that a message may then be stored twice.
    """

    retries_max: int = 8
    backoff_ms_min: int = 100  # the first wait; each further one may be twice as long
    backoff_ms_max: int = 5_000
    repeats_publishes: bool = False

    def __post_init__(self) -> None:
        if self.retries_max < 0:
            raise InvalidRequest("retries_max must be 0 or more.")
        if not 1 <= self.backoff_ms_min <= self.backoff_ms_max:
            raise InvalidRequest("backoff_ms_min must be from 1 to backoff_ms_max.")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Connections and timeouts."""

    connect_ms_max: int = 5_000
    answer_ms_max: int = 30_000  # in addition to the wait of a long poll
    connections_max: int = 100
    # Shorter than the idle timeout of brokers and most proxies, so that no connection is used that
    # the other side is about to close.
    idle_ms_max: int = 20_000
    retry: RetrySettings = field(default_factory=RetrySettings)
    # Sent with every request. They may contain secrets.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    login: HttpLogin | None = None  # None: without credentials
    tls: TlsSettings | None = None  # of https addresses; None: the authorities of the system


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The arguments of a client about credentials and certificates."""

    api_key: Secret | None = field(repr=False)
    username: str | None
    password: Secret | None = field(repr=False)
    ca_file: str | None
    client_certificate: ClientCertificate | None


def secured(
    address: str,
    settings: HttpSettings | None,
    access: Access,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, HttpSettings]:
    """Return the URL of the broker without a login in it, and the settings with the login to use.

    Arguments come first, then a login in the address, then the settings, then the environment. An
    address without a scheme is https if certificates are given, other than by the environment.
    """
    environ = os.environ if environ is None else environ
    settings = settings or HttpSettings()
    plain, stated = split_login(address)
    given = login_of(access.api_key, access.username, access.password)
    login = given or stated or settings.login or login_from(environ)
    tls = tls_of(access.ca_file, access.client_certificate) or settings.tls
    url = base_url(plain, is_encrypted=tls is not None)
    if not access.ca_file and settings.tls is None and environ.get(CA_FILE_VARIABLE):
        tls = tls_of(environ[CA_FILE_VARIABLE], access.client_certificate)
    return url, replace(settings, login=login, tls=tls)


def base_url(address: str, *, is_encrypted: bool = False) -> str:
    """Turn `HOST:PORT` or a URL into the URL that all paths are appended to."""
    text = address.strip().rstrip("/")
    scheme = next((one for one in _SCHEMES if text.lower().startswith(one)), "")
    if scheme:
        if len(text) > len(scheme):
            return text
    elif text and "/" not in text:
        return f"{'https' if is_encrypted else 'http'}://{_with_port(text)}"
    raise InvalidRequest(
        f"{address!r} is not the address of a broker; write HOST:PORT or http://HOST:PORT."
    )


def _with_port(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon or (text.count(":") > 1 and not host.endswith("]")):
        return str(Address(text.strip("[]"), PORT_DEFAULT))
    if host and port.isascii() and port.isdigit() and 0 < int(port) <= 65_535:
        return text
    raise InvalidRequest(f"{text!r} is not the address of a broker; write HOST:PORT.")
