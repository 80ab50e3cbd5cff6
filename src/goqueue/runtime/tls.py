"""Mutual TLS between nodes: each side verifies the certificate of the other.

Only TLS 1.3 is used. A peer with a certificate of the given authorities is a node of this cluster.
The certificate of a node that is dialled must also contain the host name that was dialled.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from goqueue.config import ClusterSettings
from goqueue.model.errors import InvalidSettings

_log = logging.getLogger(__name__)

_Signature = tuple[tuple[int, int, int], ...]

# The OpenSSL error if the other end does not use TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


class NodeTls:
    """The certificate of this node, and the authorities it trusts.

    The files are checked for changes before each connection, so that new certificates need no
    restart. Open connections are not affected.
    """

    def __init__(
        self, *, certificate: Path, key: Path, authorities: Path, discovered_as: str = ""
    ) -> None:
        """`discovered_as` is the DNS name of discovery, which certificates must then contain."""
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        self._discovered_as = discovered_as
        problems = self._problems()
        if problems:
            raise InvalidSettings(problems)
        self._signature = self._sign()
        self._server, self._client = self._load()

    @classmethod
    def of(cls, settings: ClusterSettings) -> NodeTls | None:
        """TLS as in the settings, which have all files or none; raises if files are unusable."""
        certificate, key = settings.tls_certificate, settings.tls_key
        authorities = settings.tls_authorities
        if certificate is None or key is None or authorities is None:
            return None
        name = "" if settings.discovery is None else settings.discovery.host
        return cls(certificate=certificate, key=key, authorities=authorities, discovered_as=name)

    def accept(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Wrap the socket of an accepted connection, before the handshake."""
        self._refresh()
        return self._server.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)

    def dial(self, dialled: socket.socket, host: str) -> ssl.SSLSocket:
        """Wrap the socket of a connection to `host`, before the handshake."""
        name = self.name_of(host)
        try:
            return self.client_context().wrap_socket(
                dialled, server_hostname=name, do_handshake_on_connect=False
            )
        except ValueError as error:
            raise OSError(f"no certificate can be for the host {name!r}: {error}") from error

    def client_context(self) -> ssl.SSLContext:
        self._refresh()
        return self._client

    def name_of(self, host: str) -> str:
        """The name that the certificate of the node at a host must contain.

        For an address found by discovery it is the DNS name of discovery.
        """
        return self._discovered_as if self._discovered_as and _is_ip(host) else host

    def _refresh(self) -> None:
        signature = self._sign()
        if signature == self._signature:
            return
        self._signature = signature  # The same files are not loaded twice, even if loading fails.
        try:
            self._server, self._client = self._load()
        except OSError as error:
            _log.warning(
                "the new certificate cannot be used, so the old one is kept: %s", reason_of(error)
            )
        else:
            _log.info("the certificate has changed; new connections use the new one")

    def _sign(self) -> _Signature:
        """A value that changes when one of the files changes."""
        try:
            found = [os.stat(path) for path in (self._certificate, self._key, self._authorities)]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.verify_mode = ssl.CERT_REQUIRED
        server.num_tickets = 0  # Connections last for days, so sessions are not resumed.
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            context.load_verify_locations(cafile=self._authorities)
        return server, client

    def _problems(self) -> list[str]:
        """All problems with the files that can be found."""
        own = {"cluster.tls_certificate": self._certificate, "cluster.tls_key": self._key}
        authorities = {"cluster.tls_authorities": self._authorities}
        return [
            *(_unreadable(own) or self._problem_of_pair()),
            *(_unreadable(authorities) or self._problem_of_authorities()),
        ]

    def _problem_of_pair(self) -> list[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except ssl.SSLError as error:
            return [
                f"cluster.tls_certificate: {self._certificate} and {self._key} are not a "
                f"certificate and its key in PEM, without a password: {reason_of(error)}"
            ]
        return []

    def _problem_of_authorities(self) -> list[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cafile=self._authorities)
        except ssl.SSLError as error:
            return [
                f"cluster.tls_authorities: {self._authorities} holds no certificates in PEM: "
                f"{reason_of(error)}"
            ]
        return []


def _unreadable(files: dict[str, Path]) -> list[str]:
    problems = []
    for setting, path in files.items():
        try:
            path.read_bytes()
        except OSError as error:
            problems.append(f"{setting}: {path} cannot be read: {error.strerror}")
    return problems


async def shake_hands(loop: asyncio.AbstractEventLoop, wrapped: ssl.SSLSocket) -> None:
    """Perform the TLS handshake; raises OSError if it fails."""
    while True:
        try:
            wrapped.do_handshake()
        except ssl.SSLWantReadError:
            await _until(wrapped, loop, loop.add_reader, loop.remove_reader)
        except ssl.SSLWantWriteError:
            await _until(wrapped, loop, loop.add_writer, loop.remove_writer)
        else:
            return


async def _until(
    wrapped: ssl.SSLSocket,
    loop: asyncio.AbstractEventLoop,
    add: Callable[..., None],
    remove: Callable[[int], object],
) -> None:
    ready: asyncio.Future[None] = loop.create_future()
    number = wrapped.fileno()
    add(number, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(number)


def reason_of(error: BaseException) -> str:
    """Why a connection could not be secured, with a hint at the cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        return "it ended the connection during the TLS handshake; does it use TLS?"
    if isinstance(error, ssl.SSLError):
        if error.reason in _PLAIN:
            return "it does not use TLS, as the nodes of this cluster do"
        if error.reason and "ALERT" in error.reason:
            return f"it refuses this node's certificate: {_spoken(error.reason)}"
        return _spoken(error.reason) if error.reason else str(error)
    if isinstance(error, TimeoutError) and not str(error):
        return "it did not respond in time"
    return str(error)


def _spoken(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _no_password() -> str:
    """An empty password, because OpenSSL would prompt for one at the terminal."""
    return ""


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
