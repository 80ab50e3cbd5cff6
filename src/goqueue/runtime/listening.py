"""Listening sockets: accept connections within limits, with TLS authentication if required."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from dataclasses import dataclass

from goqueue.model.session import ListenerRules
from goqueue.runtime.budgets import ReceiveBudget, UnsentBudget
from goqueue.runtime.sockets import SHARED_BUFFER_BYTES, Connect, SocketConnection
from goqueue.runtime.tls import NodeTls, reason_of, shake_hands
from goqueue.runtime.tls_connections import TlsConnection
from goqueue.runtime.turns import Turns
from goqueue.wire.complaints import Complaints

BUFFER_IDLE_SECONDS = 10
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_SECONDS = 1
SWEEP_MS = 5_000
SYSTEM_CHOICE = -1  # of a socket's send buffer
HANDSHAKE_SECONDS_MAX = 5.0
HANDSHAKES_PER_ADDRESS_MAX = 16  # at once; nodes make one connection to each other

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
        tls: NodeTls | None = None,
        complaints: Complaints | None = None,
        unsent: UnsentBudget | None = None,
    ) -> None:
        """With `tls`, only connections with a certificate of a node are accepted."""
        self.loop = loop
        self.connect = connect
        self.rules = rules
        self.connections: set[SocketConnection] = set()
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.turns = Turns(loop, self.shared_buffer) if tls is None else None
        self.unsent = unsent
        self.receiving = ReceiveBudget(limits.receive_bytes_total_max, loop.time)
        self.complaints = complaints or Complaints(_log, logging.INFO)
        self._limits = limits
        self._per_address: dict[str, int] = {}
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], str] = {}  # with the address of each
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None

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
        for handshake in list(self._handshakes):
            handshake.cancel()
        for connection in list(self.connections):
            connection.close()

    def forget(self, connection: SocketConnection) -> None:
        self.connections.discard(connection)
        self._uncount(connection.host)

    def _uncount(self, host: str) -> None:
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(ACCEPTS_PER_TURN):
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
        is_over = len(self.connections) + len(self._handshakes) >= limits.connections_max
        if is_over or 0 <= limits.connections_per_address_max <= count:
            _log.warning("refusing a connection from %s: the limit is reached", host)
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if limits.send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        self._per_address[host] = count + 1
        if self._tls is None:
            self.connections.add(SocketConnection(self, accepted, host))
        else:
            self._secure(self._tls, accepted, host)

    def _secure(self, tls: NodeTls, accepted: socket.socket, host: str) -> None:
        """Serve a connection only after it has authenticated as a node."""
        if list(self._handshakes.values()).count(host) >= HANDSHAKES_PER_ADDRESS_MAX:
            self.complaints.tell(host, "too many unauthenticated connections at once")
            accepted.close()
            self._uncount(host)
            return
        handshake = self.loop.create_task(self._shake_hands(tls, accepted, host))
        self._handshakes[handshake] = host
        handshake.add_done_callback(self._handshakes.pop)

    async def _shake_hands(self, tls: NodeTls, accepted: socket.socket, host: str) -> None:
        wrapped: ssl.SSLSocket | None = None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                wrapped = tls.accept(accepted)
                await shake_hands(self.loop, wrapped)
        except BaseException as error:
            (wrapped or accepted).close()
            self._uncount(host)
            if not isinstance(error, OSError | TimeoutError):
                raise
            self.complaints.tell(host, f"turned away: {reason_of(error)}")
            return
        self.complaints.settle(host)
        self.connections.add(TlsConnection(self, wrapped, host))

    def _sweep(self) -> None:
        """Close connections that have been idle for too long."""
        now, idle_seconds_max = self.loop.time(), self._limits.idle_timeout_ms / 1000
        for connection in list(self.connections):
            if now - connection.last_active > idle_seconds_max and not connection.is_busy:
                _log.debug("closing an idle connection of %s", connection.host)
                connection.close()
            elif now - connection.last_active > BUFFER_IDLE_SECONDS:
                connection.release_buffer()
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)
