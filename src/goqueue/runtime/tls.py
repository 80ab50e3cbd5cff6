"""TLS between nodes: both sides show a certificate, and each checks the other's.

Only TLS 1.3 is spoken. Whoever shows a certificate of the given authorities is a node of this
cluster; whoever is dialled must in addition be named in its certificate as it was dialled.
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

# What OpenSSL calls it when the other end does not speak TLS at all.
_PLAIN = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


class NodeTls:
    """This node's certificate, and whom it trusts.

    The files are looked at again before each connection, so that new ones count without a restart.
    Connections that are open go on as they are.
    """

    def __init__(
        self, *, certificate: Path, key: Path, authorities: Path, discovered_as: str = ""
    ) -> None:
        """`discovered_as` is the name by which nodes are found whose own names are not known."""
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
        """That of the settings, which have all of it or nothing; raises if files are unusable."""
        certificate, key = settings.tls_certificate, settings.tls_key
        authorities = settings.tls_authorities
        if certificate is None or key is None or authorities is None:
            return None
        name = "" if settings.discovery is None else settings.discovery.host
        return cls(certificate=certificate, key=key, authorities=authorities, discovered_as=name)

    def accept(self, accepted: socket.socket) -> ssl.SSLSocket:
        """The socket of somebody who connected; there is no handshake yet."""
        self._refresh()
        return self._server.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)

    def dial(self, dialled: socket.socket, host: str) -> ssl.SSLSocket:
        """The socket of a connection made to `host`; there is no handshake yet."""
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
        """The name that the certificate of whoever is dialled there must have.

        An address that discovery found is known by the name that led to it.
        """
        return self._discovered_as if self._discovered_as and _is_ip(host) else host

    def _refresh(self) -> None:
        signature = self._sign()
        if signature == self._signature:
            return
        self._signature = signature  # Whatever comes of them, the same files are not tried twice.
        try:
            self._server, self._client = self._load()
        except OSError as error:
            _log.warning(
                "the new certificate cannot be used, so the old one stays: %s", reason_of(error)
            )
        else:
            _log.info("the certificate has changed; new connections use the new one")

    def _sign(self) -> _Signature:
        """What changes when one of the files does."""
        try:
            found = [os.stat(path) for path in (self._certificate, self._key, self._authorities)]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.verify_mode = ssl.CERT_REQUIRED
        server.num_tickets = 0  # Connections last for days; nobody resumes one.
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            context.load_verify_locations(cafile=self._authorities)
        return server, client

    def _problems(self) -> list[str]:
        """Everything that is wrong with the files, as far as it can be told at once."""
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
    """Have both ends prove who they are; raises OSError when one does not."""
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
    """Why a connection could not be secured, in words that say where to look."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        return "it ended the connection during the TLS handshake; does it use TLS?"
    if isinstance(error, ssl.SSLError):
        if error.reason in _PLAIN:
            return "it does not speak TLS, as the nodes of this cluster do"
        if error.reason and "ALERT" in error.reason:
            return f"it refuses this node's certificate: {_spoken(error.reason)}"
        return _spoken(error.reason) if error.reason else str(error)
    if isinstance(error, TimeoutError) and not str(error):
        return "it did not answer in time"
    return str(error)


def _spoken(reason: str) -> str:
    return reason.lower().replace("_", " ")


def _no_password() -> str:
    """OpenSSL would ask whoever sits at the terminal."""
    return ""


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
