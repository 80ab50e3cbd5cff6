"""Connections to other nodes: made when the node starts, and made again whenever they break."""

from __future__ import annotations

import asyncio
import logging
import socket
from random import Random

from goqueue.runtime.sockets import SHARED_BUFFER_BYTES, Connect, SocketConnection

RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 1.0
CONNECT_SECONDS_MAX = 2.0
RECEIVE_BYTES_MAX = 256 << 20  # of one connection; far more than an answer has

_log = logging.getLogger(__name__)


class Dialer:
    """Keeps one connection to an address for as long as it is wanted.

    It stands where a `Listener` does for connections that were accepted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        host: str,
        port: int,
        random: Random,
    ) -> None:
        self.loop = loop
        self.connect = connect
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.receive_bytes_total = 0
        self._address = (host, port)
        self._random = random
        self._connection: SocketConnection | None = None
        self._is_stopped = False
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._dial()

    def stop(self) -> None:
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    def reserve(self, growth: int) -> bool:
        """Take memory for the receive buffer; False when that is too much."""
        if self.receive_bytes_total + growth > RECEIVE_BYTES_MAX:
            return False
        self.receive_bytes_total += growth
        return True

    def forget(self, connection: SocketConnection) -> None:
        """The connection is closed; unless nobody wants it any longer, make another."""
        self._connection = None
        self._dial_later()

    def _dial(self) -> None:
        if not self._is_stopped:
            self._task = self.loop.create_task(self._make())

    async def _make(self) -> None:
        dialled: socket.socket | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                dialled = await self._open()
        except (OSError, TimeoutError) as error:
            if not self._failures:
                _log.info("%s:%d cannot be reached: %s; retrying", *self._address, error)
            self._failures += 1
            self._dial_later()
            return
        self._failures = 0
        self._connection = SocketConnection(self, dialled, self._address[0])

    async def _open(self) -> socket.socket:
        found = await self.loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        dialled = socket.socket(family, kind, protocol)
        try:
            dialled.setblocking(False)
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.sock_connect(dialled, address)
        except BaseException:
            dialled.close()
            raise
        return dialled

    def _dial_later(self) -> None:
        if self._is_stopped:
            return
        pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** min(self._failures, 10))
        # Nodes that lost one another at the same moment should not all come back at the same one.
        self._retry = self.loop.call_later(pause * (0.5 + self._random.random() / 2), self._dial)
