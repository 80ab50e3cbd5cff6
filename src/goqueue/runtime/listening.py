"""Listening sockets: accept connections within limits, with TLS if required."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.broker.gate.request_metrics import UNMEASURED
from goqueue.model.errors import GoQueueError
from goqueue.model.session import ListenerRules
from goqueue.runtime.budgets import ReceiveBudget, UnsentBudget
from goqueue.runtime.sockets import SHARED_BUFFER_BYTES, Connect, SocketConnection
from goqueue.runtime.tls.connections import TlsConnection
from goqueue.runtime.tls.handshakes import Handshakes, Tls
from goqueue.runtime.tls.revocations import NONE_REVOKED, Revocations
from goqueue.runtime.turns import Turns
from goqueue.wire.complaints import Complaints

BUFFER_IDLE_SECONDS = 10
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_SECONDS = 1
SWEEP_MS = 5_000
REVOKED_PER_TURN = 50  # certificates compared with a new list: 3 ms
SYSTEM_CHOICE = -1  # of a socket's send buffer

# Why connections are refused, in metrics
CONNECTION_LIMIT = "connection_limit"
ADDRESS_LIMIT = "address_limit"
QUOTA = "quota"
HANDSHAKE = "handshake"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections a listener accepts, and what they may consume."""

    connections_max: int
    connections_per_address_max: int
    idle_timeout_ms: int
    receive_bytes_total_max: int
    send_buffer_bytes: int = SYSTEM_CHOICE


class Listener:
    """Accepts connections at one address, within limits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        limits: ConnectionLimits,
        rules: ListenerRules,
        *,
        tls: Tls | None = None,
        complaints: Complaints | None = None,
        unsent: UnsentBudget | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`turns` may be shared by several listeners without TLS; encrypted ones have none."""
        self.loop = loop
        self.connect = connect
        self.rules = rules
        self.connections: set[SocketConnection] = set()
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.turns: Turns | None = None
        if tls is None:
            self.turns = turns or Turns(loop, self.shared_buffer)
        self.unsent = unsent
        self.receiving = ReceiveBudget(limits.receive_bytes_total_max, loop.time)
        self.complaints = complaints or Complaints(
            _log, logging.INFO, now_ms=lambda: int(loop.time() * 1_000)
        )
        self._limits = limits
        self._per_address: dict[str, int] = {}
        self._handshakes: Handshakes | None = None
        if tls is not None:
            self._handshakes = Handshakes(
                loop, tls, secured=self._secured, not_secured=self._not_secured
            )
        self._revocations = NONE_REVOKED if tls is None else tls.revocations()
        # Called when the list of revoked certificates has changed.
        self.on_revocations: Callable[[Revocations], None] = lambda revoked: None
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        # Whether an address may open one more connection; None: any may.
        self.admits: Callable[[str], bool] | None = None
        self.measured = UNMEASURED  # until the node gives its instruments

    @property
    def handshake_count(self) -> int:
        """The number of connections whose TLS handshake is in progress."""
        return 0 if self._handshakes is None else len(self._handshakes)

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Bind and accept connections; return the bound address."""
        bound = self.bind(host, port)
        self.accept()
        return bound

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Bind the address. Connections wait until `accept`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
        listening.setblocking(False)
        self._socket = listening
        bound = listening.getsockname()
        return bound[0], bound[1]

    def accept(self) -> None:
        """Accept connections at the bound address."""
        assert self._socket is not None
        self.loop.add_reader(self._socket.fileno(), self._accept)
        self._sweep()

    def close(self) -> None:
        """Stop accepting, and close all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._socket is not None:
            self.loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._handshakes is not None:
            self._handshakes.close()
        for connection in list(self.connections):
            connection.close()

    def forget(self, connection: SocketConnection) -> None:
        self.connections.discard(connection)
        self._uncount(connection.host)

    def count_of(self, host: str) -> int:
        """How many connections an address has."""
        return self._per_address.get(host, 0)

    def _uncount(self, host: str) -> None:
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(ACCEPTS_PER_TURN):
            if self._handshakes is not None and self._handshakes.tls.pace.is_full:
                self.loop.remove_reader(self._socket.fileno())
                self._handshakes.tls.pace.when_free(self._accept_again)
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                _log.error("cannot accept connections now, retrying: %s", error)
                self.loop.remove_reader(self._socket.fileno())
                self.loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again)
                return
            self._take(accepted, address[0])

    def _accept_again(self) -> None:
        if self._socket is not None:
            self.loop.add_reader(self._socket.fileno(), self._accept)

    def _take(self, accepted: socket.socket, host: str) -> None:
        limits, count = self._limits, self._per_address.get(host, 0)
        taken = len(self.connections) + self.handshake_count
        is_full = taken >= limits.connections_max
        if is_full or 0 <= limits.connections_per_address_max <= count:
            _log.warning("refusing a connection from %s: the limit is reached", host)
            self.measured.refused(CONNECTION_LIMIT if is_full else ADDRESS_LIMIT)
            accepted.close()
            return
        if self.admits is not None and not self.admits(host):
            self.complaints.tell(host, "refusing connections: its quota is used up")
            self.measured.refused(QUOTA)
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if limits.send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        self._per_address[host] = count + 1
        if self._handshakes is None:
            self._open(SocketConnection(self, accepted, host))
        else:
            self._handshakes.begin(accepted, host)

    def _secured(self, secured: ssl.SSLSocket, host: str) -> None:
        """Serve a connection after its handshake."""
        assert self._handshakes is not None
        certificate = secured.getpeercert(binary_form=True) or b""
        if self._handshakes.tls.revocations().has(certificate):  # since the handshake began
            secured.close()
            self._not_secured(host, "turned away: its certificate is revoked")
            return
        try:
            connection = TlsConnection(self, secured, host)
        except GoQueueError as error:  # Its certificate does not make it a client of this listener.
            secured.close()
            self._not_secured(host, f"turned away: {error}")
            return
        self.complaints.settle(host)
        self._open(connection)

    def _open(self, connection: SocketConnection) -> None:
        self.connections.add(connection)
        self.measured.opened.value += 1

    def _not_secured(self, host: str, reason: str) -> None:
        self._uncount(host)
        if reason:
            self.measured.refused(HANDSHAKE)
            self.complaints.tell(host, f"{reason} (listener {self.rules.name})")

    def _end_revoked(self) -> None:
        """Close the connections of certificates that were revoked since the last time."""
        if self._handshakes is None:
            return
        before, self._revocations = self._revocations, self._handshakes.tls.revocations()
        if self._revocations is before:
            return
        if added := self._revocations.beyond(before):
            self._end_some(added, list(self.connections))
            self.on_revocations(added)

    def _end_some(self, revoked: Revocations, left: list[SocketConnection]) -> None:
        """Close connections of revoked certificates, a few in each turn: reading one takes long."""
        for connection in left[:REVOKED_PER_TURN]:
            if revoked.has(connection.certificate()):
                _log.info("closing a connection of %s: its certificate is revoked", connection.host)
                connection.close()
        if later := left[REVOKED_PER_TURN:]:
            self.loop.call_soon(self._end_some, revoked, later)

    def _sweep(self) -> None:
        """Close connections that have been idle for too long, or whose certificate is revoked."""
        self._end_revoked()
        now, idle_seconds_max = self.loop.time(), self._limits.idle_timeout_ms / 1000
        for connection in list(self.connections):
            connection.close_if_abandoned()
            if now - connection.last_active > idle_seconds_max and not connection.is_busy:
                _log.debug("closing an idle connection of %s", connection.host)
                connection.close()
            elif now - connection.last_active > BUFFER_IDLE_SECONDS:
                connection.release_buffer()
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)
