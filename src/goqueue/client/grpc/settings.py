"""Settings of a client of the gRPC API: address, deadlines, retries, credentials, limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from goqueue.client.addresses import Address
from goqueue.client.http.settings import Access, RetrySettings
from goqueue.client.security.http import (
    CA_FILE_VARIABLE,
    HttpLogin,
    login_from,
    login_of,
    split_login,
    tls_of,
)
from goqueue.client.security.settings import TlsSettings
from goqueue.model.errors import InvalidRequest

ADDRESS_DEFAULT = "127.0.0.1:9000"
PORT_DEFAULT = 9000
_ENCRYPTED, _PLAIN = ("grpcs://", "https://"), ("grpc://", "http://")


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """Connections, deadlines and limits."""

    connect_ms_max: int = 5_000
    answer_ms_max: int = 30_000  # the deadline of a call, in addition to the wait of a long poll
    retry: RetrySettings = field(default_factory=RetrySettings)
    message_bytes_max: int = 32 << 20  # of a response; larger ones fail
    # A connection on which nothing arrives is checked so often while a call waits, and given up
    # after the timeout. Brokers disconnect clients that ask more often than every 10 s.
    keepalive_ms: int = 30_000
    keepalive_timeout_ms: int = 10_000
    # Sent with every call. It may contain secrets.
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    login: HttpLogin | None = None  # None: without credentials
    tls: TlsSettings | None = None  # None: without TLS

    def __post_init__(self) -> None:
        if self.keepalive_ms < 10_000:
            raise InvalidRequest("keepalive_ms must be 10000 or more; brokers disconnect others.")
        for name in ("connect_ms_max", "answer_ms_max", "message_bytes_max"):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be 1 or more.")


class Target(NamedTuple):
    """Where to connect to."""

    address: str
    is_encrypted: bool

    def __str__(self) -> str:
        return f"{'grpcs' if self.is_encrypted else 'grpc'}://{self.address}"


def secured(
    address: str,
    settings: GrpcSettings | None,
    access: Access,
    environ: Mapping[str, str] | None = None,
) -> tuple[Target, GrpcSettings]:
    """Return the target without a login in it, and the settings with the login to use.

    Arguments come first, then a login in the address, then the settings, then the environment. An
    address without a scheme is encrypted if certificates are given, other than by the environment.
    """
    environ = os.environ if environ is None else environ
    settings = settings or GrpcSettings()
    plain, stated = split_login(address)
    given = login_of(access.api_key, access.username, access.password)
    login = given or stated or settings.login or login_from(environ)
    tls = tls_of(access.ca_file, access.client_certificate) or settings.tls
    target = target_of(plain, is_encrypted=tls is not None)
    if target.is_encrypted and tls is None:
        tls = tls_of(environ.get(CA_FILE_VARIABLE), None) or TlsSettings()
    return target, replace(settings, login=login, tls=tls if target.is_encrypted else None)


def target_of(address: str, *, is_encrypted: bool = False) -> Target:
    """Parse `HOST:PORT`, or with grpc:// or grpcs:// before it; http and https mean the same."""
    text = address.strip().rstrip("/")
    for scheme in (*_ENCRYPTED, *_PLAIN):
        if text.lower().startswith(scheme):
            text, is_encrypted = text[len(scheme) :], scheme in _ENCRYPTED
            break
    host, port = _split(text)
    number = port or str(PORT_DEFAULT)
    is_port = number.isascii() and number.isdigit() and 0 < int(number) <= 65_535
    if not host or "/" in host or any(one.isspace() for one in host) or not is_port:
        raise InvalidRequest(f"{address!r} is not the address of a broker; write HOST:PORT.")
    return Target(str(Address(host, int(number))), is_encrypted)


def _split(text: str) -> tuple[str, str]:
    """The host and the port, which may be missing."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") > 1:
        return text, ""  # an IPv6 address without a port
    host, _, port = text.partition(":")
    return host, port
