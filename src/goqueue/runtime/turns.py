"""Serves many connections in one turn: one call receives from all of them, one sends to all.

Handling a small request costs less than a callback of the event loop and a system call from Python,
and with many clients many are ready at once. So their sockets are in a separate epoll set, and the
event loop only waits for any of them to be ready.
"""

from __future__ import annotations

import asyncio
import logging
import select
import sys
from typing import Protocol

from goqueue.runtime import turn_reference
from goqueue.runtime.turn_reference import APART

try:
    from goqueue.runtime._turns import receive_ready, send_all
except ImportError:  # GoQueue was installed without a C compiler.
    from goqueue.runtime.turn_reference import receive_ready, send_all

# With fewer connections the event loop watches each of them: the set costs one more system call,
# and in plain Python it saves nothing.
CONNECTIONS_MIN = 8 if receive_ready is not turn_reference.receive_ready else sys.maxsize
ROOM_BYTES_MIN = 64 << 10  # space per socket; with less, it waits until the buffer is free
ROUNDS_MAX = 8  # of the buffer, then other work gets its turn

_log = logging.getLogger(__name__)


class Connection(Protocol):
    """A connection with a non-blocking socket."""

    host: str

    def readable(self) -> None: ...

    def received(self, buffer: memoryview, length: int, now: float) -> None: ...

    def sent(self, answer: bytes, length: int) -> None: ...

    def close(self) -> None: ...


class Turns:
    """The connections of one listener to receive from, and the responses to be sent together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, shared_buffer: memoryview) -> None:
        self._loop = loop
        self._buffer = shared_buffer
        self._connections: dict[int, Connection] = {}
        self._apart: set[int] = set()
        self._epoll: select.epoll | None = None
        self._answers: dict[Connection, tuple[int, bytes]] = {}
        self.is_holding = False  # whether responses are collected to be sent together
        self.now = 0.0  # when collecting began

    def watch(self, descriptor: int, connection: Connection) -> None:
        """Notify the connection whenever data has arrived."""
        self._connections[descriptor] = connection
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)
        else:
            self._loop.add_reader(descriptor, connection.readable)
            if len(self._connections) >= CONNECTIONS_MIN and hasattr(select, "epoll"):
                self._unite()

    def unwatch(self, descriptor: int) -> None:
        del self._connections[descriptor]
        if self._epoll is None:
            self._loop.remove_reader(descriptor)
            return
        self._epoll.unregister(descriptor)
        if not self._connections:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def set_apart(self, descriptor: int, is_apart: bool) -> None:
        """Note whether the connection has its own buffer, and so receives by itself."""
        if is_apart:
            self._apart.add(descriptor)
        else:
            self._apart.discard(descriptor)

    def hold(self) -> None:
        """Collect responses until `release`, which sends them together."""
        self.is_holding = True
        self.now = self._loop.time()

    def take(self, descriptor: int, connection: Connection, answer: bytes) -> None:
        """Add a response to be sent with the others."""
        if connection in self._answers:
            answer = self._answers[connection][1] + answer
        self._answers[connection] = descriptor, answer

    def release(self) -> None:
        answers, self._answers = self._answers, {}
        self.is_holding = False
        descriptors = [descriptor for descriptor, _ in answers.values()]
        pieces = [piece for _, piece in answers.values()]
        short = send_all(descriptors, pieces)
        if short:
            connections = list(answers)
            for number, sent in short:
                connections[number].sent(pieces[number], sent)

    def take_back(self, connection: Connection) -> bytes:
        """Remove and return the collected data of a connection."""
        _, answer = self._answers.pop(connection, (0, b""))
        return answer

    def _unite(self) -> None:
        """Receive from many connections at once from now on, because there are enough of them."""
        self._epoll = select.epoll()
        for descriptor in self._connections:
            self._loop.remove_reader(descriptor)
            self._epoll.register(descriptor, select.EPOLLIN)
        self._loop.add_reader(self._epoll.fileno(), self._receive)

    def _receive(self) -> None:
        for _ in range(ROUNDS_MAX):
            if self._epoll is None or self._receive_once() >= ROOM_BYTES_MIN:
                return

    def _receive_once(self) -> int:
        """Receive what fits into the buffer and handle it; return the free space left."""
        assert self._epoll is not None
        buffer, now, filled = self._buffer, self._loop.time(), 0
        rows = receive_ready(self._epoll, self._connections, self._apart, buffer, ROOM_BYTES_MIN)
        for connection, start, length in rows:
            try:
                if start == APART:
                    # These come last, because one without its own buffer uses the shared one.
                    connection.readable()
                else:
                    filled = start + max(length, 0)
                    connection.received(buffer[start:filled], length, now)
            except Exception:
                # The data of other connections is in the buffer and must not be lost.
                _log.exception("handling what %s sent failed", connection.host)
                connection.close()
        return len(buffer) - filled
