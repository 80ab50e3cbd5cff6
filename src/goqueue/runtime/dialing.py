"""Connections to other nodes, opened at start and reopened whenever they break."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from random import Random
from typing import Protocol

from goqueue.broker.gate.request_metrics import UNMEASURED
from goqueue.loop.peers import Contact
from goqueue.model.session import ListenerRules
from goqueue.runtime.budgets import ReceiveBudget, UnsentBudget
from goqueue.runtime.sockets import SHARED_BUFFER_BYTES, Connect, SocketConnection
from goqueue.runtime.tls.connections import TlsConnection
from goqueue.runtime.tls.files import reason_of
from goqueue.runtime.tls.nodes import NodeTls, shake_hands
from goqueue.runtime.tls.revocations import Revocations
from goqueue.runtime.turns import Turns
from goqueue.wire.complaints import Complaints

RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 1.0
CONNECT_SECONDS_MAX = 2.0
STEADY_SECONDS = 1.0  # a connection that lasted this long is reopened almost at once
# A process that exits closes its connections before its listener.
FIRST_RETRY_SECONDS = 0.005
# TCP doubles its retransmission timeout at each attempt, so after an outage it would stay silent
# for as long as the outage lasted. A connection without acknowledgements is therefore reopened.
UNACKNOWLEDGED_MS_MAX = 2_000
RECEIVE_BYTES_MAX = 256 << 20  # of one connection; far more than a response needs

_log = logging.getLogger(__name__)


class Caller(Protocol):
    """The user of the connection."""

    complaint: str  # why the handshake failed, once one side has reported it

    @property
    def connect(self) -> Connect: ...

    @property
    def is_connected(self) -> bool:
        """Whether the handshake has succeeded with the expected node."""


class Dialer:
    """Keeps one connection to an address open until it is closed.

    It has the role that a `Listener` has for accepted connections.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        caller: Caller,
        host: str,
        port: int,
        random: Random,
        *,
        tls: NodeTls | None = None,
        on_gone: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_gone` is called when a connection has ended and the next attempt is refused."""
        self.loop = loop
        self.rules = ListenerRules("internal", must_authenticate=True)
        self.connect = caller.connect
        self.complaints = Complaints(_log, logging.INFO)
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.turns: Turns | None = None  # There is only one connection.
        self.measured = UNMEASURED
        self.unsent: UnsentBudget | None = None  # Limits on unread responses apply to clients only.
        self.receiving = ReceiveBudget(RECEIVE_BYTES_MAX, loop.time)
        self._caller = caller
        self._address = (host, port)
        self._name = f"{host}:{port}"
        self._tls = tls
        self._random = random
        self._on_gone = on_gone
        self._connection: SocketConnection | None = None
        self._connected_at = 0.0
        self._contact = Contact.OPEN  # last known state while there is no connection
        self._is_stopped = False
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._dial()

    @property
    def contact(self) -> Contact:
        return Contact.OPEN if self._caller.is_connected else self._contact

    def stop(self) -> None:
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    def end_revoked(self, revoked: Revocations) -> None:
        """Close the connection if the certificate of the other node is revoked."""
        if self._connection is not None and revoked.has(self._connection.certificate()):
            self._connection.close()

    def forget(self, connection: SocketConnection) -> None:
        """Open another connection after one has closed, unless it is no longer needed."""
        self._connection = None
        if self._caller.is_connected:
            self._contact = Contact.BROKEN
            self._failures = 0
            self.complaints.settle(self._name)
        elif not self._is_stopped:
            # Do not retry at once where the other node refuses this one.
            self._failures += 1
            self._complain(connection.failure)
            if self._failures > 1:
                self._contact = Contact.OPEN  # It listens, and refuses this node.
        is_steady = self.loop.time() - self._connected_at >= STEADY_SECONDS
        if self._failures == 0 and is_steady and not self._is_stopped:
            # Soon: that shows whether the process has exited or only the connection broke.
            self._retry = self.loop.call_later(FIRST_RETRY_SECONDS, self._dial)
        else:
            self._dial_later()

    def _complain(self, failure: Exception | None) -> None:
        """Report why a connection ended before its handshake."""
        if self._caller.complaint:
            self.complaints.tell(self._name, self._caller.complaint, logging.WARNING)
        elif isinstance(failure, ssl.SSLError):
            self.complaints.tell(self._name, reason_of(failure), _level_of(failure))
        else:
            hint = "does it trust this node's certificate?" if self._tls else "does it want TLS?"
            reason = f"it ended the connection before it said who it is; {hint}"
            self.complaints.tell(self._name, reason)

    def hurry(self) -> None:
        """Connect now instead of waiting for the next attempt."""
        if self._retry is not None and self._connection is None:
            self._retry.cancel()
            self._dial()

    def _dial(self) -> None:
        self._retry = None
        if not self._is_stopped:
            self._task = self.loop.create_task(self._make())

    async def _make(self) -> None:
        dialled: socket.socket | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                dialled = await self._open()
        except (OSError, TimeoutError) as error:
            reason = f"cannot be reached, retrying: {reason_of(error)}"
            self.complaints.tell(self._name, reason, _level_of(error))
            self._failures += 1
            self._dial_later()
            self._note_failure(error)
            return
        self._connected_at = self.loop.time()
        kind = SocketConnection if self._tls is None else TlsConnection
        self._connection = kind(self, dialled, self._address[0])
        if self._tls is not None:
            self.end_revoked(self._tls.revocations())  # since the handshake began

    def _note_failure(self, error: OSError | TimeoutError) -> None:
        """Note a failed attempt; only a refusal proves that no process is listening."""
        was_connected = self._contact is Contact.BROKEN
        is_refused = isinstance(error, ConnectionRefusedError)
        self._contact = Contact.GONE if is_refused else Contact.OPEN
        if is_refused and was_connected:
            self._on_gone()

    async def _open(self) -> socket.socket:
        found = await self.loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        dialled = socket.socket(family, kind, protocol)
        try:
            dialled.setblocking(False)
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # not on macOS
                dialled.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX
                )
            await self.loop.sock_connect(dialled, address)
            if self._tls is not None:
                dialled = secured = self._tls.dial(dialled, self._address[0])
                await shake_hands(self.loop, secured)
        except BaseException:
            dialled.close()
            raise
        return dialled

    def _dial_later(self) -> None:
        if self._is_stopped:
            return
        pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** min(self._failures, 10))
        # Jitter, because nodes that lost each other at the same time would all reconnect together.
        self._retry = self.loop.call_later(pause * (0.5 + self._random.random() / 2), self._dial)


def _level_of(error: Exception) -> int:
    """The log level of an error; a wrong certificate, unlike a stopped node, needs an operator."""
    return logging.WARNING if isinstance(error, ssl.SSLError) else logging.INFO
