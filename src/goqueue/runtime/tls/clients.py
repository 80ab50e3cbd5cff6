"""TLS of the listeners for clients.

The certificate is that of the server; whether clients need one too is a setting. Client
certificates are verified by OpenSSL during the handshake, and become principals in the gate.
"""

from __future__ import annotations

import importlib
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from goqueue.config import SecuritySettings, Settings
from goqueue.config.security import NO_CERTIFICATES, REQUIRED
from goqueue.runtime.tls.expiry import not_after_ms
from goqueue.runtime.tls.files import WatchedFiles, check_files, load_pair
from goqueue.runtime.tls.revocations import (
    Revocations,
    check_lists,
    check_revocations,
    read_revocations,
)

HTTP_PROTOCOL = "http/1.1"
GRPC_PROTOCOL = "h2"
# For TLS 1.2: forward secrecy and authenticated encryption. Those of TLS 1.3 are all of this kind.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class _Loaded(NamedTuple):
    """What is made of the files."""

    plain: ssl.SSLContext  # for protocols without a name in ALPN
    http: ssl.SSLContext
    grpc: ssl.SSLContext
    not_after_ms: int
    revocations: Revocations


class ClientTls:
    """The certificate that clients see, and the authorities of theirs.

    The files are checked for changes before each connection, so that new certificates need no
    restart. Open connections are not affected, but for those of certificates that a new revocation
    list names.
    """

    def __init__(self, settings: SecuritySettings) -> None:
        certificate, key = settings.tls_certificate, settings.tls_key
        assert certificate is not None
        assert key is not None
        self._certificate, self._key = certificate, key
        self._client_auth = settings.tls_client_auth
        self._authorities: Path | None = None
        self._lists: Path | None = None
        trusted: dict[str, Path] = {}
        lists: dict[str, Path] = {}
        if self._client_auth != NO_CERTIFICATES:
            assert settings.tls_client_authorities is not None
            self._authorities = settings.tls_client_authorities
            trusted = {"security.tls_client_authorities": self._authorities}
            self._lists = settings.tls_revocation_lists
            if self._lists is not None:
                lists = {"security.tls_revocation_lists": self._lists}
            # Loaded now: loading it takes long, and it reads the first certificate that comes.
            importlib.import_module("cryptography.x509")
        own = {"security.tls_certificate": certificate, "security.tls_key": key}
        check_files(own, trusted)
        check_lists(lists)
        self._files = WatchedFiles(own | trusted | lists, self._load, "TLS of clients")

    @classmethod
    def of(cls, settings: Settings) -> ClientTls | None:
        """TLS as in the settings; None if no listener uses it. Raises if files are unusable."""
        if not any(one.is_encrypted for one in settings.listeners.all_of_clients()):
            return None
        return cls(settings.security)

    def not_after_ms(self) -> int:
        """Return when the current certificate, or another one of its chain, expires."""
        return self._files.current().not_after_ms

    def revocations(self) -> Revocations:
        """Return which certificates are revoked now."""
        return self._files.current().revocations

    def accept(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Wrap the socket of an accepted connection, before the handshake."""
        return _wrap(self._files.current().plain, accepted)

    def accept_http(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Wrap it for HTTP, which has a name in ALPN."""
        return _wrap(self._files.current().http, accepted)

    def accept_grpc(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Wrap it for gRPC, which is carried by HTTP/2."""
        return _wrap(self._files.current().grpc, accepted)

    def _load(self) -> _Loaded:
        plain, http, grpc = self._context(), self._context(), self._context()
        http.set_alpn_protocols([HTTP_PROTOCOL])
        grpc.set_alpn_protocols([GRPC_PROTOCOL])
        revocations = read_revocations(self._lists)
        return _Loaded(plain, http, grpc, not_after_ms(self._certificate), revocations)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        context.options |= ssl.OP_NO_RENEGOTIATION
        load_pair(context, self._certificate, self._key)
        if self._authorities is not None:
            is_required = self._client_auth == REQUIRED
            context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
            context.load_verify_locations(cafile=self._authorities)
            check_revocations(context, self._lists)
            # A resumed session would not be verified again, even by new authorities.
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
        return context


def _wrap(context: ssl.SSLContext, accepted: socket.socket) -> ssl.SSLSocket:
    return context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
