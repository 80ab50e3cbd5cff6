"""Somebody who reaches the port that nodes use among themselves."""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType

from goqueue.loop.peers import PeerKind
from goqueue.wire.parts import Part
from goqueue.wire.peers.frames import Frame, Hello, Role, frame_parts, take_frame
from goqueue.wire.peers.handshake import CallerHandshake, Credentials

SECONDS_MAX = 20


class Intruder:
    """One connection to a node; what was sent on it is kept."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self._received = b""
        self.sent = b""

    def __enter__(self) -> Intruder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self.sent += data
        with contextlib.suppress(ConnectionError):  # What the node answers says whether it minds.
            self._socket.sendall(data)

    def send_parts(self, parts: list[Part]) -> None:
        self.send(b"".join(parts))  # type: ignore[arg-type]

    def notify(self, kind: PeerKind, head: bytes) -> None:
        self.send_parts(frame_parts(Role.NOTICE, kind, 0, head))

    def call(self, kind: PeerKind, head: bytes, body: bytes = b"") -> None:
        self.send_parts(frame_parts(Role.CALL, kind, 1, head, [body] if body else ()))

    def shake_hands(self, credentials: Credentials | None, me: Hello, node: int) -> Hello:
        handshake = CallerHandshake(credentials, me, node)
        self.send_parts(handshake.begin())
        while True:
            step = handshake.receive(self.frame())
            if isinstance(step, Hello):
                return step
            self.send_parts(step)

    def frame(self) -> Frame:
        """The next frame that the node sends; ConnectionError when it ends the connection."""
        while (taken := take_frame(memoryview(self._received))) is None:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the node has ended the connection")
            self._received += data
        frame = taken[0]._replace(body=memoryview(bytes(taken[0].body)))
        self._received = self._received[taken[1] :]
        return frame

    def is_turned_away(self) -> bool:
        """Whether the node ends the connection and says no more than that it refuses."""
        try:
            while self.frame().role is Role.REFUSAL:
                pass
        except (ConnectionError, TimeoutError) as error:
            return not isinstance(error, TimeoutError)
        return False
