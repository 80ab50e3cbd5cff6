"""The serving side: connections that other nodes have opened to this one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from goqueue.loop.clock import Clock
from goqueue.loop.peers import Answer, Handler, NoticeHandler
from goqueue.model.errors import GoQueueError, InvalidRequest, MalformedRequest
from goqueue.model.errors.refusals import Refusal, refusal_of
from goqueue.model.session import ConnectedClient
from goqueue.wire.complaints import Complaints
from goqueue.wire.parts import Part
from goqueue.wire.peers.frames import (
    ASKING_ID,
    HANDSHAKE_FRAME_BYTES_MAX,
    NO_CALL,
    Frame,
    Hello,
    Role,
    frame_parts,
    refusal_parts,
    take_frame,
    wanted_bytes,
)
from goqueue.wire.peers.handshake import HANDSHAKE_MS_MAX, CalleeHandshake, Credentials, Unproven

CALLS_MAX = 1_000  # in flight on one connection
UNSENT_BYTES_MAX = 64 << 20
# Unauthenticated connections. A further one replaces the oldest, so that nodes cannot be locked out
# by occupying all of them.
STRANGERS_MAX = 256
STRANGERS_PER_ADDRESS_MAX = 64  # as many nodes as one machine may have

_log = logging.getLogger(__name__)


class PeerServer:
    """The handlers of calls from other nodes, by kind of message."""

    def __init__(
        self, clock: Clock, hello: Callable[[], Hello], credentials: Credentials | None
    ) -> None:
        """Without credentials the connections themselves must authenticate both sides (TLS)."""
        self.clock = clock
        self.hello = hello  # the identity of this node, as far as it is known yet
        self.credentials = credentials
        self.handlers: dict[int, Handler] = {}
        self.notice_handlers: dict[int, NoticeHandler] = {}
        self.complaints = Complaints(_log, now_ms=clock.now_ms)
        self._strangers: dict[Serving, str] = {}  # with their addresses, the oldest first
        # Notified which node has connected, because that node is likely reachable too.
        self.on_met: Callable[[int], None] = lambda node: None

    def connect(
        self,
        client: ConnectedClient,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> Serving:
        serving = Serving(self, client.host, send=send, close=close, unblock=unblock)
        self._make_room(client.host)
        self._strangers[serving] = client.host
        return serving

    def _make_room(self, host: str) -> None:
        of_host = [one for one, address in self._strangers.items() if address == host]
        if len(of_host) >= STRANGERS_PER_ADDRESS_MAX:
            of_host[0].turn_away("too many unauthenticated connections at once")
        elif len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            oldest.turn_away("too many unauthenticated connections at once")

    def known(self, serving: Serving) -> None:
        """Note that a connection is authenticated or closed."""
        self._strangers.pop(serving, None)


class Serving:
    """One connection opened by another node."""

    def __init__(
        self,
        server: PeerServer,
        host: str,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> None:
        self.unsent_bytes = 0
        self._server = server
        self._host = host
        self._send = send
        self._close = close
        self._unblock = unblock
        self._handshake = CalleeHandshake(server.credentials)
        self._caller: Hello | None = None
        self._alarm = server.clock.call_later(HANDSHAKE_MS_MAX, self._expire)
        self._calls = 0
        self._is_closed = False

    @property
    def is_blocked(self) -> bool:
        return self._calls >= CALLS_MAX or self.unsent_bytes > UNSENT_BYTES_MAX

    @property
    def is_busy(self) -> bool:
        return self._calls > 0

    def receive(self, data: memoryview) -> int:
        """Handle the complete frames at the start of `data`; return their length."""
        at = 0
        while not self._is_closed and not self.is_blocked:
            if self._caller is None:
                length = self._shake_hands(data[at:])
                if not length:
                    break
                at += length
                continue
            taken = take_frame(data[at:])
            if taken is None:
                break
            frame, length = taken
            at += length
            self._handle(self._caller, frame)
        return at

    def wanted_bytes(self, data: memoryview) -> int:
        return wanted_bytes(data)

    def closed(self) -> None:
        self._is_closed = True
        self._alarm.cancel()
        self._server.known(self)

    # Before authentication

    def _shake_hands(self, data: memoryview) -> int:
        """Handle one frame of an unauthenticated peer; return its length, 0 if it is incomplete."""
        try:
            taken = take_frame(data, HANDSHAKE_FRAME_BYTES_MAX)
            if taken is None:
                return 0
            step = self._handshake.receive(taken[0], self._server.hello())
        except GoQueueError as error:
            # One reason for all invalid frames, because the sender controls their texts.
            is_known = isinstance(error, Unproven)
            self.turn_away(
                str(error) if is_known else "it does not use the peer protocol", tells=is_known
            )
            return len(data)
        if isinstance(step, Hello):
            self._meet(step)
        else:
            self._send(step)
        return taken[1]

    def _expire(self) -> None:
        self.turn_away(f"it has not proved who it is within {HANDSHAKE_MS_MAX} ms")

    def turn_away(self, reason: str, *, tells: bool = False) -> None:
        """Close an unauthenticated connection; with `tells` the reason is sent to the peer."""
        if self._is_closed or self._caller is not None:
            return
        self._server.complaints.tell(self._host, f"turned away: {reason}")
        if tells:
            self._send(refusal_parts(0, NO_CALL, Refusal("invalid_request", reason)))
        self._server.known(self)
        self._close()

    # Calls and notices

    def _handle(self, caller: Hello, frame: Frame) -> None:
        if frame.role is Role.NOTICE:
            self._note(caller.node_id, frame)
        elif frame.role is Role.CALL:
            self._call(caller.node_id, frame)
        else:
            raise MalformedRequest(f"A caller does not send a frame of the role {frame.role.name}.")

    def _note(self, caller: int, frame: Frame) -> None:
        notice_handler = self._server.notice_handlers.get(frame.kind)
        if notice_handler is None:
            return  # A later version may send unknown kinds of messages.
        try:
            notice_handler(caller, frame.head, frame.body)
        except GoQueueError:
            raise
        except Exception:
            self._fail(frame.kind)

    def _meet(self, caller: Hello) -> None:
        mine = self._server.hello()
        refusal = _unwelcome(caller, mine)
        name = f"node {caller.node_id} at {self._host}"
        if refusal is not None:
            self._server.complaints.tell(name, f"turned away: {refusal}")
            self._send(refusal_parts(0, NO_CALL, Refusal("invalid_request", refusal)))
            self._close()
            return
        self._server.complaints.settle(name)
        self._server.complaints.settle(self._host)
        self._server.known(self)
        self._alarm.cancel()
        self._send(self._handshake.welcome(caller, mine))
        if caller.node_id == ASKING_ID:
            self._close()  # Discovery has its response, and may make no further calls.
            return
        self._caller = caller
        self._server.on_met(caller.node_id)

    def _call(self, caller: int, frame: Frame) -> None:
        self._calls += 1
        done = partial(self._answer, frame.kind, frame.call)
        handler = self._server.handlers.get(frame.kind)
        if handler is None:
            refused = InvalidRequest(f"This node does not serve calls of the kind {frame.kind}.")
            done(None, refused)
            return
        try:
            promise = handler(caller, frame.head, frame.body)
        except Exception as error:
            done(None, error)
        else:
            promise.then(done)

    def _answer(self, kind: int, call: int, answer: Answer | None, error: Exception | None) -> None:
        was_blocked = self.is_blocked
        self._calls -= 1
        if self._is_closed:
            return
        if isinstance(error, msgspec.MsgspecError):
            # Part of a call comes from clients, which must not be able to break the connection.
            error = InvalidRequest(f"A call of the kind {kind} cannot be read: {error}.")
        if isinstance(error, GoQueueError):
            self._send(refusal_parts(kind, call, refusal_of(error)))
        elif error is not None:
            self._fail(kind, error)
            return
        else:
            assert answer is not None
            self._send(frame_parts(Role.ANSWER, kind, call, answer.head, answer.body))
        if was_blocked and not self.is_blocked:
            self._unblock()

    def _fail(self, kind: int, error: Exception | None = None) -> None:
        """Close the connection, not the node, after an invalid message or an internal error."""
        _log.error("a message of the kind %d failed", kind, exc_info=error or True)
        self._close()


def _unwelcome(caller: Hello, mine: Hello) -> str | None:
    """The reason why a node is refused, if there is one."""
    if mine.cluster_id and caller.cluster_id and caller.cluster_id != mine.cluster_id:
        return (
            f"Node {caller.node_id} belongs to cluster {caller.cluster_id}, and this one to "
            f"{mine.cluster_id}; check its list of peers, or its data folder."
        )
    if caller.node_id == mine.node_id:
        return f"Two nodes have the id {mine.node_id}; give each its own `node.id`."
    return None
