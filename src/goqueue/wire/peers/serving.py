"""The answering side: connections that other nodes have made to this one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.peers import Answer, Handler, NoticeHandler
from goqueue.model.errors import GoQueueError, InvalidRequest, MalformedRequest
from goqueue.wire.parts import Part
from goqueue.wire.peers.complaints import Complaints
from goqueue.wire.peers.frames import (
    NO_CALL,
    PROTOCOL_VERSION,
    Frame,
    Hello,
    Refusal,
    Role,
    frame_parts,
    hello_parts,
    read_hello,
    refusal_parts,
    take_frame,
    wanted_bytes,
)
from goqueue.wire.peers.refusals import refusal_of

CALLS_MAX = 1_000  # of one connection that may wait for their answers
UNSENT_BYTES_MAX = 64 << 20

_log = logging.getLogger(__name__)


class PeerServer:
    """What this node does for others, by kind of message."""

    def __init__(self, hello: Callable[[], Hello]) -> None:
        self.hello = hello  # what this node says of itself, as far as it knows by now
        self.handlers: dict[int, Handler] = {}
        self.notice_handlers: dict[int, NoticeHandler] = {}
        self.complaints = Complaints(_log)
        # Told who has made a connection: a sign that it can be reached too.
        self.on_met: Callable[[int], None] = lambda node: None

    def connect(
        self,
        client_host: str,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> Serving:
        return Serving(self, client_host, send=send, close=close, unblock=unblock)


class Serving:
    """One connection, made by another node."""

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
        self._caller: Hello | None = None
        self._calls = 0
        self._is_closed = False

    @property
    def is_blocked(self) -> bool:
        return self._calls >= CALLS_MAX or self.unsent_bytes > UNSENT_BYTES_MAX

    @property
    def is_busy(self) -> bool:
        return self._calls > 0

    def receive(self, data: memoryview) -> int:
        """Handle the whole frames that `data` begins with; return how many bytes they have."""
        at = 0
        while not self._is_closed and not self.is_blocked:
            taken = take_frame(data[at:])
            if taken is None:
                break
            frame, length = taken
            at += length
            self._handle(frame)
        return at

    def wanted_bytes(self, data: memoryview) -> int:
        return wanted_bytes(data)

    def closed(self) -> None:
        self._is_closed = True

    def _handle(self, frame: Frame) -> None:
        if self._caller is None:
            self._meet(read_hello(frame))
        elif frame.role is Role.NOTICE:
            self._note(self._caller.node_id, frame)
        elif frame.role is Role.CALL:
            self._call(self._caller.node_id, frame)
        else:
            raise MalformedRequest(f"A caller does not send a frame of the role {frame.role.name}.")

    def _note(self, caller: int, frame: Frame) -> None:
        notice_handler = self._server.notice_handlers.get(frame.kind)
        if notice_handler is None:
            return  # A later version may say more than we understand.
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
        self._caller = caller
        self._send(hello_parts(mine))
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
        """What was said makes no sense, or we have a fault: end the connection, not the node."""
        _log.error("a message of the kind %d failed", kind, exc_info=error or True)
        self._close()


def _unwelcome(caller: Hello, mine: Hello) -> str | None:
    """Why a node may not speak to this one, if so."""
    if caller.version != PROTOCOL_VERSION:
        return (
            f"Node {caller.node_id} speaks version {caller.version} of the protocol between "
            f"nodes, and this one {PROTOCOL_VERSION}; run the same release on both."
        )
    if mine.cluster_id and caller.cluster_id and caller.cluster_id != mine.cluster_id:
        return (
            f"Node {caller.node_id} belongs to cluster {caller.cluster_id}, and this one to "
            f"{mine.cluster_id}; check its list of peers, or its data folder."
        )
    if caller.node_id == mine.node_id:
        return f"Two nodes have the id {mine.node_id}; give each its own `node.id`."
    return None
