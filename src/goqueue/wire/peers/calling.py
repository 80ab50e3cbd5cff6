"""The calling side: one connection to another node, reopened whenever it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from goqueue.loop.clock import Clock, Handle
from goqueue.loop.peers import Answered
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, MalformedRequest, RequestTimedOut
from goqueue.model.errors.refusals import error_of
from goqueue.model.session import ConnectedClient
from goqueue.model.support import Support
from goqueue.wire.parts import Part
from goqueue.wire.peers.frames import (
    FRAME_BYTES_MAX,
    HANDSHAKE_FRAME_BYTES_MAX,
    NO_CALL,
    Frame,
    Hello,
    Role,
    frame_parts,
    read_refusal,
    take_frame,
    wanted_bytes,
)
from goqueue.wire.peers.handshake import HANDSHAKE_MS_MAX, CallerHandshake, Credentials

CALLS_MAX = 10_000  # calls in flight; further ones are refused at once
UNSENT_BYTES_MAX = 64 << 20  # then notices are dropped and calls refused


class _Pending(NamedTuple):
    promise: Promise[Answered]
    alarm: Handle


class Calling:
    """The calls and notices of this node to one other node."""

    def __init__(
        self,
        clock: Clock,
        node_id: int,
        hello: Callable[[], Hello],
        credentials: Credentials | None,
    ) -> None:
        """Without credentials the connections themselves must authenticate both sides (TLS)."""
        self.node_id = node_id
        self.unsent_bytes = 0
        self.support: Support | None = None  # of the other node, while it is connected
        self.complaint = ""  # why the last handshake failed, if one of the two reported it
        self._clock = clock
        self._hello = hello
        self._credentials = credentials
        self._handshake: CallerHandshake | None = None
        self._alarm: Handle | None = None  # for the handshake
        self._pending: dict[int, _Pending] = {}
        self._last_call = NO_CALL
        self._send: Callable[[list[Part]], None] | None = None
        self._close: Callable[[], None] | None = None
        self._is_met = False
        self._waiting: list[list[Part]] = []  # for the identity of the other node
        self._waiting_bytes = 0

    # For callers

    @property
    def is_connected(self) -> bool:
        return self._is_met

    def call(
        self, kind: int, head: bytes, body: Sequence[Part] = (), *, timeout_ms: int
    ) -> Promise[Answered]:
        """Call the other node; the promise fails if there is no response in time.

        The outcome is then unknown, unless the error was raised by the other node.
        """
        promise: Promise[Answered] = Promise()
        refusal = self._refusal()
        if refusal is not None:
            promise.reject(refusal)
            return promise
        self._last_call += 1
        number = self._last_call
        alarm = self._clock.call_later(timeout_ms, partial(self._time_out, number, timeout_ms))
        self._pending[number] = _Pending(promise, alarm)
        self._transmit(frame_parts(Role.CALL, kind, number, head, body))
        return promise

    def notify(self, kind: int, head: bytes, body: Sequence[Part] = ()) -> None:
        """Send a notice, which may be lost."""
        if self._refusal() is None:
            self._transmit(frame_parts(Role.NOTICE, kind, NO_CALL, head, body))

    def _refusal(self) -> GoQueueError | None:
        if self._send is None:
            return RequestTimedOut(f"Node {self.node_id} cannot be reached now; retry.")
        unsent = self.unsent_bytes + self._waiting_bytes
        if len(self._pending) >= CALLS_MAX or unsent > UNSENT_BYTES_MAX:
            return RequestTimedOut(
                f"Too many calls to node {self.node_id} are in flight; retry later."
            )
        return None

    def _transmit(self, parts: list[Part]) -> None:
        assert self._send is not None
        if self._is_met:
            self._send(parts)
        else:
            self._waiting.append(parts)
            self._waiting_bytes += sum(map(len, parts))

    def _time_out(self, number: int, timeout_ms: int) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            text = f"Node {self.node_id} has not answered within {timeout_ms} ms; retry."
            pending.promise.reject(RequestTimedOut(text))

    # For the socket

    def connect(
        self,
        client: ConnectedClient,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> Calling:
        """Use a new connection; there is one at a time."""
        assert self._send is None, "a node is dialled once at a time"
        self._send, self._close = send, close
        self.unsent_bytes = 0
        self.complaint = ""
        # Not at once, because the owner of the socket is still being constructed.
        self._clock.call_soon(partial(self._introduce, send))
        return self

    def _introduce(self, send: Callable[[list[Part]], None]) -> None:
        if self._send is not send:
            return
        self._handshake = CallerHandshake(self._credentials, self._hello(), self.node_id)
        self._alarm = self._clock.call_later(HANDSHAKE_MS_MAX, self._give_up)
        send(self._handshake.begin())

    def _give_up(self) -> None:
        """Close the connection, because the handshake takes too long."""
        self._hang_up(f"node {self.node_id}: no answer within {HANDSHAKE_MS_MAX} ms")

    def _end_handshake(self) -> None:
        self._handshake = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    @property
    def is_blocked(self) -> bool:
        return False

    @property
    def is_busy(self) -> bool:
        return True  # Connections between nodes are never closed as idle.

    def receive(self, data: memoryview) -> int:
        at = 0
        while self._send is not None:
            bytes_max = FRAME_BYTES_MAX if self._is_met else HANDSHAKE_FRAME_BYTES_MAX
            taken = take_frame(data[at:], bytes_max)
            if taken is None:
                break
            frame, length = taken
            at += length
            self._handle(frame)
        return at

    def wanted_bytes(self, data: memoryview) -> int:
        return wanted_bytes(data)

    def closed(self) -> None:
        """Fail all calls in flight, whose outcome is unknown after the connection broke."""
        self._send = self._close = self.support = None
        self._is_met = False
        self._end_handshake()
        self._waiting.clear()
        self._waiting_bytes = 0
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.alarm.cancel()
            text = f"The connection to node {self.node_id} broke before it answered; retry."
            one.promise.reject(RequestTimedOut(text))

    def _handle(self, frame: Frame) -> None:
        if not self._is_met:
            self._meet(frame)
            return
        pending = self._pending.pop(frame.call, None)
        if pending is None:
            return  # The response is late; the call has already timed out.
        pending.alarm.cancel()
        if frame.role is Role.ANSWER:
            pending.promise.resolve(Answered(frame.head, frame.body))
        elif frame.role is Role.REFUSAL:
            pending.promise.reject(error_of(read_refusal(frame)))
        else:
            raise MalformedRequest(f"A call is not answered by a {frame.role.name}.")

    def _meet(self, frame: Frame) -> None:
        if self._handshake is None or self._send is None:
            raise MalformedRequest("A node must not send a response without a call.")
        try:
            step = self._handshake.receive(frame)
        except GoQueueError as error:
            self._hang_up(f"node {self.node_id}: {error}")
            return
        if not isinstance(step, Hello):
            self._send(step)
            return
        hello = step
        if hello.node_id != self.node_id:
            self._hang_up(
                f"this should be the address of node {self.node_id} and is that of node "
                f"{hello.node_id}; check the list of peers"
            )
            return
        self._is_met, self.support = True, hello.support
        self._end_handshake()
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        for parts in waiting:
            if self._send is not None:
                self._send(parts)

    def _hang_up(self, complaint: str) -> None:
        """Close the connection; its creator logs the reason once."""
        self.complaint = complaint
        if self._close is not None:
            self._close()
