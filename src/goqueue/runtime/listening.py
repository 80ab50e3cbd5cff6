"""Listening sockets: accept connections within limits, with TLS authentication if required."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl

from goqueue.runtime.sockets import (
    MEMORY_WAIT_SECONDS_MAX,
    SHARED_BUFFER_BYTES,
    Connect,
    SocketConnection,
    UnsentBudget,
)
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
SMALL_REQUEST_BYTES_MAX = 2 << 20
ROOM_PAUSE_SECONDS = 0.25
WAITING_FOR_MEMORY_MAX = 100  # connections, each with up to a shared buffer of data
HANDSHAKES_PER_ADDRESS_MAX = 16  # at once; nodes make one connection to each other

_log = logging.getLogger(__name__)


class Listener:
    """Accepts connections at one address, within limits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        *,
        connections_max: int,
        connections_per_address_max: int,
        idle_timeout_ms: int,
        receive_bytes_total_max: int,
        send_buffer_bytes: int = SYSTEM_CHOICE,
        tls: NodeTls | None = None,
        complaints: Complaints | None = None,
        unsent: UnsentBudget | None = None,
    ) -> None:
        """With `tls`, only connections with a certificate of a node are accepted."""
        self.loop = loop
        self.connect = connect
        self.connections: set[SocketConnection] = set()
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.turns = Turns(loop, self.shared_buffer) if tls is None else None
        self.unsent = unsent
        self.receive_bytes_total = 0
        self.receive_bytes_total_max = receive_bytes_total_max
        self.complaints = complaints or Complaints(_log, logging.INFO)
        self._shortage = Complaints(_log, now_ms=lambda: int(loop.time() * 1000))
        self._waiting: set[SocketConnection] = set()  # for memory
        self._room_made = 0.0
        self._connections_max = connections_max
        self._per_address_max = connections_per_address_max
        self._send_buffer_bytes = send_buffer_bytes
        self._per_address: dict[str, int] = {}
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], str] = {}  # with the address of each
        self._idle_timeout = idle_timeout_ms / 1000
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

    def reserve(self, connection: SocketConnection, size: int) -> bool:
        """Reserve a receive buffer of `size` bytes for a connection; False if it has to wait."""
        if not self._has_room(connection, size):
            for one in self.connections:
                one.release_buffer()
            if not self._has_room(connection, size):
                return False
        self.receive_bytes_total += size - connection.buffer_bytes
        return True

    def _has_room(self, connection: SocketConnection, size: int) -> bool:
        """Whether a buffer may grow: small ones always, large ones in order of arrival.

        An eighth of the memory is reserved for small requests.
        """
        total = self.receive_bytes_total + size - connection.buffer_bytes
        if total > self.receive_bytes_total_max:
            return False
        if size <= SMALL_REQUEST_BYTES_MAX:
            return True
        is_alone = self.receive_bytes_total == connection.buffer_bytes
        if not is_alone and total > self.receive_bytes_total_max * 7 // 8:
            return False
        return not any(one.receiving_since < connection.receiving_since for one in self._waiting)

    def may_wait(self, connection: SocketConnection) -> bool:
        """Whether a connection may wait for memory; a waiting one holds some memory itself."""
        is_allowed = len(self._waiting) < WAITING_FOR_MEMORY_MAX
        self._shortage.tell(
            connection.host,
            f"{'has to wait' if is_allowed else 'closing a connection'}: partly received requests "
            f"take {self.receive_bytes_total_max} bytes, the most that "
            "listeners.receive_buffer_bytes_total_max allows",
        )
        if is_allowed:
            self._waiting.add(connection)
        return is_allowed

    def waited(self, connection: SocketConnection) -> None:
        """Note that a connection has received the memory it waited for, or has ended."""
        self._waiting.discard(connection)

    def make_room(self) -> None:
        """Close the connection that blocks others from receiving, if there is one.

        That is the one with the largest request among those that could continue and are stalled. If
        all wait for memory, it is the one that began last, because it has the least to resend.
        """
        now = self.loop.time()
        if now - self._room_made < ROOM_PAUSE_SECONDS:
            return  # Waiting connections retry first.
        holding = [one for one in self.connections if one.held_bytes]
        moving = [one for one in holding if one not in self._waiting]
        stalled = [one for one in moving if one.receiving_since < now - MEMORY_WAIT_SECONDS_MAX]
        large = [one for one in holding if one.held_bytes > SMALL_REQUEST_BYTES_MAX]
        if stalled:
            chosen = max(stalled, key=lambda one: one.held_bytes)
        elif large and not moving:
            chosen = max(large, key=lambda one: one.receiving_since)
        else:
            return
        self._room_made = now
        self._shortage.tell(
            chosen.host,
            f"closing a connection that holds {chosen.held_bytes} bytes of a request, for which "
            "others wait; listeners.receive_buffer_bytes_total_max bounds them together",
        )
        chosen.close()

    def forget(self, connection: SocketConnection) -> None:
        self.connections.discard(connection)
        self._waiting.discard(connection)
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
        count = self._per_address.get(host, 0)
        is_over = len(self.connections) + len(self._handshakes) >= self._connections_max
        if is_over or 0 <= self._per_address_max <= count:
            _log.warning("refusing a connection from %s: the limit is reached", host)
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
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
        now = self.loop.time()
        for connection in list(self.connections):
            if now - connection.last_active > self._idle_timeout and not connection.is_busy:
                _log.debug("closing an idle connection of %s", connection.host)
                connection.close()
            elif now - connection.last_active > BUFFER_IDLE_SECONDS:
                connection.release_buffer()
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)
