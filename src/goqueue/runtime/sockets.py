"""Listening sockets and connections, on the event loop's readiness events.

Requests are read into one buffer that all connections share and handled in place; only a request
that has not come whole gets a buffer of its connection's own, which grows with what has come, not
with what is announced. Answers go out with as few system calls as their parts allow; parts that
are ranges of files go from the page cache to the socket without passing through this process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from goqueue.model.errors import GoQueueError
from goqueue.runtime.disk import LocalFile
from goqueue.wire.parts import FileRange, Part

SHARED_BUFFER_BYTES = 256 << 10
BUFFER_BYTES_MIN = 16 << 10
BUFFER_IDLE_SECONDS = 10
ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_SECONDS = 1
MEMORY_RETRY_SECONDS = 0.1
GATHER_MAX = 64  # parts handed to one system call
SEND_PER_TURN_BYTES = 4 << 20  # then others get their turn
SWEEP_MS = 5_000
SYSTEM_CHOICE = -1  # of a socket's send buffer

_log = logging.getLogger(__name__)


class Session(Protocol):
    """The protocol side of a connection."""

    unsent_bytes: int

    @property
    def is_blocked(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    def receive(self, data: memoryview) -> int: ...

    def wanted_bytes(self, data: memoryview) -> int: ...

    def closed(self) -> None: ...


class Connect(Protocol):
    """Makes the protocol side of a new connection."""

    def __call__(
        self,
        client_host: str,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> Session: ...


class Owner(Protocol):
    """Whoever made a connection, and sees to its memory and to its end."""

    loop: asyncio.AbstractEventLoop
    connect: Connect
    shared_buffer: memoryview
    receive_bytes_total: int

    def reserve(self, growth: int) -> bool: ...

    def forget(self, connection: SocketConnection) -> None: ...


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
    ) -> None:
        self.loop = loop
        self.connect = connect
        self.connections: set[SocketConnection] = set()
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.receive_bytes_total = 0
        self.receive_bytes_total_max = receive_bytes_total_max
        self._connections_max = connections_max
        self._per_address_max = connections_per_address_max
        self._send_buffer_bytes = send_buffer_bytes
        self._per_address: dict[str, int] = {}
        self._idle_timeout = idle_timeout_ms / 1000
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Begin to accept; the address that was really bound."""
        bound = self.bind(host, port)
        self.accept()
        return bound

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take an address. Whoever connects waits until `accept`."""
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
        """Begin to accept at the address that was taken."""
        assert self._socket is not None
        self.loop.add_reader(self._socket.fileno(), self._accept)
        self._sweep()

    def close(self) -> None:
        """Accept no more, and end the connections there are."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._socket is not None:
            self.loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for connection in list(self.connections):
            connection.close()

    def reserve(self, growth: int) -> bool:
        """Take memory for a receive buffer; False when all that may be used is in use."""
        if self.receive_bytes_total + growth > self.receive_bytes_total_max:
            for connection in self.connections:
                connection.release_buffer()
        if self.receive_bytes_total + growth > self.receive_bytes_total_max:
            return False
        self.receive_bytes_total += growth
        return True

    def forget(self, connection: SocketConnection) -> None:
        self.connections.discard(connection)
        host = connection.host
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
                _log.error("cannot accept connections for a while: %s", error)
                self.loop.remove_reader(self._socket.fileno())
                self.loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again)
                return
            self._take(accepted, address[0])

    def _accept_again(self) -> None:
        if self._socket is not None:
            self.loop.add_reader(self._socket.fileno(), self._accept)

    def _take(self, accepted: socket.socket, host: str) -> None:
        count = self._per_address.get(host, 0)
        is_over = len(self.connections) >= self._connections_max
        if is_over or 0 <= self._per_address_max <= count:
            _log.warning("refusing a connection from %s: the limit is reached", host)
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        self._per_address[host] = count + 1
        self.connections.add(SocketConnection(self, accepted, host))

    def _sweep(self) -> None:
        """End connections that have been silent for too long."""
        now = self.loop.time()
        for connection in list(self.connections):
            if now - connection.last_active > self._idle_timeout and not connection.is_busy:
                _log.debug("closing an idle connection of %s", connection.host)
                connection.close()
            elif now - connection.last_active > BUFFER_IDLE_SECONDS:
                connection.release_buffer()
        self._sweeper = self.loop.call_later(SWEEP_MS / 1000, self._sweep)


class SocketConnection:
    """One connected socket, its receive buffer and what is still to be sent."""

    __slots__ = (
        "_buffer",
        "_fd",
        "_filled",
        "_is_reading",
        "_is_waiting_for_memory",
        "_is_writing",
        "_loop",
        "_outgoing",
        "_owner",
        "_session",
        "_socket",
        "host",
        "last_active",
    )

    def __init__(self, owner: Owner, connected: socket.socket, host: str) -> None:
        self._owner = owner
        self._loop = owner.loop
        self._socket: socket.socket | None = connected
        self._fd = connected.fileno()
        self._buffer = bytearray(0)
        self._filled = 0
        self._outgoing: deque[Part] = deque()
        self._is_writing = False
        self._is_reading = True
        self._is_waiting_for_memory = False
        self.host = host
        self.last_active = self._loop.time()
        self._session = owner.connect(
            host, send=self._send, close=self.close, unblock=self._unblock
        )
        self._loop.add_reader(self._fd, self._readable)

    @property
    def is_busy(self) -> bool:
        """Whether it is silent because the client waits for an answer."""
        return self._session.is_busy

    def close(self) -> None:
        if self._socket is None:
            return
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        self._socket.close()
        self._socket = None
        for part in self._outgoing:
            _release(part)
        self._outgoing.clear()
        self._filled = 0
        self.release_buffer()
        self._owner.forget(self)
        self._session.closed()

    def release_buffer(self) -> None:
        """Give the buffer back unless it holds a part of a request."""
        if self._buffer and not self._filled:
            self._owner.receive_bytes_total -= len(self._buffer)
            self._buffer = bytearray()

    def _readable(self) -> None:
        assert self._socket is not None
        is_shared = not self._buffer
        buffer = self._owner.shared_buffer if is_shared else memoryview(self._buffer)
        try:
            received = self._socket.recv_into(buffer[self._filled :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = 0
        if not received:
            self.close()
            return
        self.last_active = self._loop.time()
        self._handle(buffer, self._filled + received)

    def _handle(self, buffer: memoryview, filled: int) -> None:
        """Handle the whole requests in a buffer, and keep the rest in one of our own."""
        try:
            used = self._session.receive(buffer[:filled])
        except GoQueueError as error:
            _log.info("closing the connection of %s: %s", self.host, error)
            self.close()
            return
        if self._socket is None:
            return
        if used == filled:
            self._filled = 0
        elif not self._keep(buffer[used:filled]):
            self._await_memory(bytes(buffer[used:filled]))
        if self._session.is_blocked:
            self._pause_reading()

    def _keep(self, rest: memoryview) -> bool:
        """Put the rest at the start of a buffer with room for more; False without memory."""
        filled = len(rest)
        wanted = self._session.wanted_bytes(rest)
        # Only data that has come earns more room, whatever length was announced.
        size = max(len(self._buffer), min(wanted, max(2 * filled, BUFFER_BYTES_MIN)), filled)
        if size > len(self._buffer):
            if not self._owner.reserve(size - len(self._buffer)):
                return False
            buffer = bytearray(size)
            buffer[:filled] = rest
            self._buffer = buffer
        else:
            # The rest may lie in this very buffer: a view can be copied over itself.
            memoryview(self._buffer)[:filled] = rest
        self._filled = filled
        return True

    def _await_memory(self, rest: bytes) -> None:
        """There is no memory for the rest of a request: go on when there is."""
        _log.warning("receive buffers are at their limit; %s must wait", self.host)
        self._is_waiting_for_memory = True
        self._pause_reading()
        self._loop.call_later(MEMORY_RETRY_SECONDS, self._retry_memory, rest)

    def _retry_memory(self, rest: bytes) -> None:
        if self._socket is None:
            return
        if self._keep(memoryview(rest)):
            self._is_waiting_for_memory = False
            self._resume_reading()
        else:
            self._loop.call_later(MEMORY_RETRY_SECONDS, self._retry_memory, rest)

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._fd)
            self._is_reading = False

    def _unblock(self) -> None:
        self._loop.call_soon(self._resume_reading)

    def _resume_reading(self) -> None:
        if self._socket is None or self._is_reading or self._session.is_blocked:
            return
        if self._is_waiting_for_memory:
            return  # What comes next in the stream is not in the buffer yet.
        self._is_reading = True
        self._loop.add_reader(self._fd, self._readable)
        if self._filled:
            # Requests may have come while nobody was to handle them.
            self._handle(memoryview(self._buffer), self._filled)

    def _send(self, parts: list[Part]) -> None:
        self.last_active = self._loop.time()
        if self._is_writing:
            self._queue(parts)
            return
        data = _joined(parts)
        if data is None:
            self._queue(parts)
            self._write()
            return
        assert self._socket is not None
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close()
            return
        # The usual case: everything fits into the socket's buffer at once.
        if sent != len(data):
            self._queue([memoryview(data)[sent:]])

    def _queue(self, parts: list[Part]) -> None:
        for part in parts:
            if part.__class__ is FileRange:
                _pin(part)
            self._session.unsent_bytes += len(part)
        self._outgoing += parts
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._write)

    def _write(self) -> None:
        """Send what the socket takes now."""
        budget = SEND_PER_TURN_BYTES
        was_blocked = self._session.is_blocked
        try:
            while self._outgoing and budget > 0:
                sent = self._write_some()
                budget -= sent
                self._session.unsent_bytes -= sent
                self.last_active = self._loop.time()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT):
                _log.warning("sending to %s failed: %s", self.host, error)
            self.close()
            return
        if not self._outgoing:
            self._loop.remove_writer(self._fd)
            self._is_writing = False
        if was_blocked and not self._session.is_blocked:
            self._unblock()

    def _write_some(self) -> int:
        outgoing = self._outgoing
        first = outgoing[0]
        if isinstance(first, FileRange):
            sent = os.sendfile(self._fd, first.file.fileno(), first.position, first.length)
            if sent == 0:
                raise OSError(errno.EIO, f"{first.file.path} ended early")
            first.position += sent
            first.length -= sent
            if not first.length:
                _release(outgoing.popleft())
            return sent
        gathered: list[bytes | bytearray | memoryview] = []
        for part in outgoing:
            if isinstance(part, FileRange) or len(gathered) == GATHER_MAX:
                break
            gathered.append(part)
        assert self._socket is not None
        has_more = len(outgoing) > len(gathered)
        # Headers and the file they announce should share packets.
        sent = self._socket.sendmsg(gathered, (), socket.MSG_MORE if has_more else 0)
        left = sent
        for part in gathered:
            if left < len(part):
                outgoing[0] = memoryview(part)[left:]
                break
            left -= len(part)
            outgoing.popleft()
        return sent


def _joined(parts: list[Part]) -> bytes | None:
    """All parts in one piece; None when there are too many, or ranges of files among them."""
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]  # Most answers are a single small piece.
    if len(parts) > GATHER_MAX or any(part.__class__ is FileRange for part in parts):
        return None
    return b"".join(parts)  # type: ignore[arg-type]


def _pin(part: Part) -> None:
    if isinstance(part, FileRange) and isinstance(part.file, LocalFile):
        part.file.pin()


def _release(part: Part) -> None:
    if isinstance(part, FileRange) and isinstance(part.file, LocalFile):
        part.file.unpin()
