"""TLS handshakes of accepted connections.

A handshake costs about as much as many requests, so their steps are spread: in each iteration of
the event loop they get a short time, then other connections have their turn. A client that is slow
occupies no thread and little memory, because nothing is allocated before it has sent something.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from goqueue.runtime.tls.files import reason_of
from goqueue.runtime.tls.revocations import NONE_REVOKED, Revocations
from goqueue.wire.foreign import protocol_of

# Per iteration of the event loop. One step can take a few milliseconds, with a large RSA key.
TURN_SECONDS = 0.002
STEPS_WAITING_MAX = 256  # then no further connections are accepted, and the system queues them
PEEKED_BYTES = 8
UNREAD_BYTES_MAX = 64 << 10
_HANDSHAKE_RECORD = b"\x16"  # the first byte of TLS


class Pace:
    """Runs steps of handshakes for a short time per iteration of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._when_free: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        return len(self._steps) >= STEPS_WAITING_MAX

    def run(self, step: Callable[[], None], *, is_first: bool) -> None:
        """Run a step when it is its turn; handshakes that have begun are completed first."""
        if is_first:
            self._steps.append(step)
        else:
            self._steps.appendleft(step)
        self._schedule()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back once, when few steps are waiting."""
        self._when_free.append(callback)

    def _schedule(self) -> None:
        if self._steps and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        end = time.perf_counter() + TURN_SECONDS
        self._is_scheduled = False
        try:
            while self._steps:
                self._steps.popleft()()
                if time.perf_counter() >= end:
                    break
        finally:
            self._schedule()
        if self._when_free and len(self._steps) <= STEPS_WAITING_MAX // 2:
            callbacks, self._when_free = self._when_free, []
            for callback in callbacks:
                callback()


class HandshakeLimits(NamedTuple):
    """How many handshakes a listener performs at once, and how long each may take."""

    total_max: int = 2_048  # a further one replaces the oldest of the address with the most
    per_address_max: int = 2_048
    seconds_max: float = 10.0


class Tls(NamedTuple):
    """How the connections of a listener are secured."""

    accept: Callable[[socket.socket], ssl.SSLSocket]  # wraps a socket before the handshake
    pace: Pace
    limits: HandshakeLimits = HandshakeLimits()
    plain_answer: bytes = b""  # to clients that do not use TLS
    revocations: Callable[[], Revocations] = lambda: NONE_REVOKED


class Secured(Protocol):
    """Called with a socket after its handshake."""

    def __call__(self, secured: ssl.SSLSocket, host: str) -> None: ...


class NotSecured(Protocol):
    """Called with the reason why a connection was closed; empty if that need not be logged."""

    def __call__(self, host: str, reason: str) -> None: ...


class Handshakes:
    """The handshakes of one listener that are in progress."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: Tls,
        *,
        secured: Secured,
        not_secured: NotSecured,
    ) -> None:
        self.loop = loop
        self.tls = tls
        self._secured = secured
        self._not_secured = not_secured
        self._by_host: dict[str, dict[_Handshake, None]] = {}  # each the oldest first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, accepted: socket.socket, host: str) -> None:
        """Perform the handshake of a connection, and hand it over or close it."""
        limits = self.tls.limits
        of_host = self._by_host.setdefault(host, {})
        if len(of_host) >= limits.per_address_max:
            accepted.close()
            self._not_secured(host, "too many unauthenticated connections at once")
            return
        if self._count >= limits.total_max:
            most = max(self._by_host.values(), key=len)
            next(iter(most)).end("too many unauthenticated connections at once")
        # Ending another one may have removed the entry of this address.
        self._by_host.setdefault(host, of_host)[_Handshake(self, accepted, host)] = None
        self._count += 1

    def close(self) -> None:
        for of_host in list(self._by_host.values()):
            for handshake in list(of_host):
                handshake.end("")

    def done(self, handshake: _Handshake, secured: ssl.SSLSocket) -> None:
        self._forget(handshake)
        self._secured(secured, handshake.host)

    def failed(self, handshake: _Handshake, reason: str) -> None:
        self._forget(handshake)
        self._not_secured(handshake.host, reason)

    def _forget(self, handshake: _Handshake) -> None:
        self._count -= 1
        of_host = self._by_host[handshake.host]
        del of_host[handshake]
        if not of_host:
            del self._by_host[handshake.host]


class _Handshake:
    """One connection on its way through the handshake."""

    __slots__ = ("_is_over", "_loop", "_owner", "_socket", "_timer", "_watching", "host")

    def __init__(self, owner: Handshakes, accepted: socket.socket, host: str) -> None:
        self.host = host
        self._owner = owner
        self._loop = owner.loop
        self._socket = accepted
        self._is_over = False
        self._watching: Callable[[int], object] | None = None
        self._timer = self._loop.call_later(owner.tls.limits.seconds_max, self._expire)
        self._watch(self._loop.add_reader, self._loop.remove_reader)

    def end(self, reason: str) -> None:
        """Close the connection."""
        if self._is_over:
            return
        self._finish()
        self._hang_up()
        self._owner.failed(self, reason)

    def _watch(self, add: Callable[..., None], remove: Callable[[int], object]) -> None:
        add(self._socket.fileno(), self._ready)
        self._watching = remove

    def _unwatch(self) -> None:
        if self._watching is not None:
            self._watching(self._socket.fileno())
            self._watching = None

    def _ready(self) -> None:
        # Not watched while it waits for its turn, or it would be called in every iteration.
        self._unwatch()
        self._owner.tls.pace.run(self._step, is_first=not self._is_begun)

    def _step(self) -> None:
        if self._is_over:
            return
        try:
            if not self._is_begun and not self._begin(self._socket):
                return
            assert isinstance(self._socket, ssl.SSLSocket)
            self._socket.do_handshake()
        except (ssl.SSLWantReadError, BlockingIOError):
            self._watch(self._loop.add_reader, self._loop.remove_reader)
        except ssl.SSLWantWriteError:
            self._watch(self._loop.add_writer, self._loop.remove_writer)
        except OSError as error:
            self.end(f"turned away: {reason_of(error)}")
        else:
            self._finish()
            self._owner.done(self, self._socket)

    def _begin(self, accepted: socket.socket) -> bool:
        """Look at the first bytes; if they are TLS, wrap the socket, otherwise end."""
        first = accepted.recv(PEEKED_BYTES, socket.MSG_PEEK)
        if not first:
            self.end("")  # Load balancers and scanners connect and hang up.
            return False
        if not first.startswith(_HANDSHAKE_RECORD):
            self._answer_plain(accepted)
            protocol = protocol_of(first)
            spoken = f"; it uses {protocol} in plain text" if protocol else ""
            self.end(f"turned away: it does not use TLS, which this listener requires{spoken}")
            return False
        self._socket = self._owner.tls.accept(accepted)
        return True

    def _answer_plain(self, accepted: socket.socket) -> None:
        if self._owner.tls.plain_answer:
            with contextlib.suppress(OSError):
                accepted.send(self._owner.tls.plain_answer)

    @property
    def _is_begun(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket)

    def _expire(self) -> None:
        if self._watching is None:  # It waits for its turn here, which is not the client's fault.
            self._timer = self._loop.call_later(self._owner.tls.limits.seconds_max, self._expire)
        else:
            late = "turned away: it did not complete the TLS handshake in time"
            self.end(late if self._is_begun else "")

    def _finish(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._unwatch()

    def _hang_up(self) -> None:
        """Close the socket so that the client can still read why, in an alert or an answer.

        With unread data in its buffer, closing a socket resets the connection at once.
        """
        number = self._socket.fileno()
        if number < 0:
            return
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_WR)
            os.read(number, UNREAD_BYTES_MAX)
        self._socket.close()
