"""A client of HTTP/2 that does no more than it is told: it may be silent, or read nothing."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from enum import IntEnum

from google.protobuf.message import Message

from tests.integration.waiting import eventually

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SECONDS = 60
_ACK, _END_STREAM, _END_HEADERS = 0x1, 0x1, 0x4


class Frame(IntEnum):
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7


class FrameClient:
    """One connection, on which the frames of the node are counted and not answered."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        self._socket.settimeout(None)
        self._socket.sendall(PREFACE + _frame(Frame.SETTINGS, 0, 0, b""))
        self._counts: Counter[int] = Counter()
        self._is_closed = threading.Event()
        self._answers_pings = False
        threading.Thread(target=self._read, daemon=True).start()

    def answer_pings(self) -> None:
        self._answers_pings = True

    def open(
        self, stream: int, path: str, request: Message, *, last: bool = False, timeout: str = ""
    ) -> None:
        """Begin a call with its first request; a timeout is a number and a unit, such as `2S`."""
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "x",
            "te": "trailers",
            "content-type": "application/grpc",
            **({"grpc-timeout": timeout} if timeout else {}),
        }
        # Literals of HPACK without an index.
        head = b"".join(
            b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode())
            for name, value in fields.items()
        )
        body = request.SerializeToString()
        message = b"\0" + len(body).to_bytes(4, "big") + body
        self._socket.sendall(
            _frame(Frame.HEADERS, _END_HEADERS, stream, head)
            + _frame(Frame.DATA, _END_STREAM if last else 0, stream, message)
        )

    def wait_for(self, kind: Frame, count: int = 1) -> None:
        """Wait until the node has sent so many frames of a kind."""
        eventually(
            lambda: self._counts[kind] >= count, because=f"{count} of {kind.name}", within=SECONDS
        )

    def count_of(self, *kinds: Frame) -> int:
        """How many frames of these kinds the node has sent."""
        return sum(self._counts[one] for one in kinds)

    def is_closed_by_the_node(self) -> bool:
        """Wait until the node ends the connection; False if it does not."""
        return self._is_closed.wait(SECONDS)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while head := stream.read(9):
                    payload = stream.read(int.from_bytes(head[:3], "big"))
                    self._counts[head[3]] += 1
                    is_ping = head[3] == Frame.PING and not head[4] & _ACK
                    if is_ping and self._answers_pings:
                        self._socket.sendall(_frame(Frame.PING, _ACK, 0, payload))
        except (OSError, ValueError):
            pass  # closed by one side or the other
        self._is_closed.set()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )
