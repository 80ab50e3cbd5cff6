"""Mutual TLS between nodes: each side verifies the certificate of the other.

Only TLS 1.3 is used. A peer with a certificate of the given authorities is a node of this cluster.
The certificate of a node that is dialled must also contain the host name that was dialled.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from goqueue.config import ClusterSettings
from goqueue.runtime.tls.expiry import not_after_ms
from goqueue.runtime.tls.files import WatchedFiles, check_files, load_pair
from goqueue.runtime.tls.revocations import (
    Revocations,
    check_lists,
    check_revocations,
    read_revocations,
)


class _Loaded(NamedTuple):
    """What is made of the files."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    not_after_ms: int
    revocations: Revocations


class NodeTls:
    """The certificate of this node, and the authorities it trusts.

    The files are checked for changes before each connection, so that new certificates need no
    restart. Open connections are not affected, but for those of certificates that a new revocation
    list names.
    """

    def __init__(
        self,
        *,
        certificate: Path,
        key: Path,
        authorities: Path,
        revocation_lists: Path | None = None,
        discovered_as: str = "",
    ) -> None:
        """`discovered_as` is the DNS name of discovery, which certificates must then contain."""
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        self._lists = revocation_lists
        self._discovered_as = discovered_as
        own = {"cluster.tls_certificate": certificate, "cluster.tls_key": key}
        trusted = {"cluster.tls_authorities": authorities}
        check_files(own, trusted)
        lists: dict[str, Path] = {}
        if revocation_lists is not None:
            lists = {"cluster.tls_revocation_lists": revocation_lists}
        check_lists(lists)
        self._contexts = WatchedFiles(own | trusted | lists, self._load, "TLS between nodes")

    @classmethod
    def of(cls, settings: ClusterSettings) -> NodeTls | None:
        """TLS as in the settings, which have all files or none; raises if files are unusable."""
        certificate, key = settings.tls_certificate, settings.tls_key
        authorities = settings.tls_authorities
        if certificate is None or key is None or authorities is None:
            return None
        name = "" if settings.discovery is None else settings.discovery.host
        return cls(
            certificate=certificate,
            key=key,
            authorities=authorities,
            revocation_lists=settings.tls_revocation_lists,
            discovered_as=name,
        )

    def accept(self, accepted: socket.socket) -> ssl.SSLSocket:
        """Wrap the socket of an accepted connection, before the handshake."""
        server = self._contexts.current().server
        return server.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)

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
        return self._contexts.current().client

    def not_after_ms(self) -> int:
        """Return when the current certificate, or another one of its chain, expires."""
        return self._contexts.current().not_after_ms

    def revocations(self) -> Revocations:
        """Return which certificates are revoked now."""
        return self._contexts.current().revocations

    def name_of(self, host: str) -> str:
        """The name that the certificate of the node at a host must contain.

        For an address found by discovery it is the DNS name of discovery.
        """
        return self._discovered_as if self._discovered_as and _is_ip(host) else host

    def _load(self) -> _Loaded:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server.verify_mode = ssl.CERT_REQUIRED
        server.num_tickets = 0  # Connections last for days, so sessions are not resumed.
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            load_pair(context, self._certificate, self._key)
            context.load_verify_locations(cafile=self._authorities)
            check_revocations(context, self._lists)
        revocations = read_revocations(self._lists)
        return _Loaded(server, client, not_after_ms(self._certificate), revocations)


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


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
