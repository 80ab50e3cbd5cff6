"""Proxies that lose answers: the broker does what was asked, and nobody hears of it."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self

from .process import Broker

BUFFER_BYTES = 1 << 16


class _Proxy(ABC):
    """Listens from the start, and serves each connection in a thread."""

    def __init__(self) -> None:
        self._target = "", 0
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lead_to(self, address: str) -> None:
        host, port = address.split(":")
        self._target = host, int(port)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    @abstractmethod
    def _serve(self, client: socket.socket) -> None: ...


class LossyProxy(_Proxy):
    """Passes bytes on. After `lose(b"/publish")` the answer to the next such request is cut off."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.lead_to(broker.http.removeprefix("http://"))
        self._losing: bytes | None = None
        self.lost = 0

    def lose(self, path: bytes) -> None:
        self._losing = path

    def _serve(self, client: socket.socket) -> None:
        """One request at a time, as clients of HTTP/1.1 send them."""
        with client, socket.create_connection(self._target) as broker:
            while request := client.recv(BUFFER_BYTES):
                is_lost = self._losing is not None and self._losing in request
                if is_lost:
                    self._losing = None
                broker.sendall(request)
                # A body may come in a piece of its own; it is passed on until the answer begins.
                client.settimeout(0.01)
                answer = self._answer(client, broker)
                client.settimeout(None)
                if is_lost:
                    self.lost += 1
                    return
                client.sendall(answer)

    def _answer(self, client: socket.socket, broker: socket.socket) -> bytes:
        broker.settimeout(0.05)
        answer = b""
        while True:
            try:
                broker.sendall(client.recv(BUFFER_BYTES))
            except TimeoutError:
                pass
            try:
                answer += broker.recv(BUFFER_BYTES)
            except TimeoutError:
                continue
            head, found, body = answer.partition(b"\r\n\r\n")
            if found and len(body) >= _length(head):
                return answer


class LossyKafkaProxy(_Proxy):
    """Passes requests on. After `lose(0)` the answer to the next Produce request is cut off."""

    def __init__(self) -> None:
        super().__init__()
        self._losing: int | None = None
        self.has_lost = threading.Event()  # and the client has hung up

    def lose(self, api_key: int) -> None:
        self._losing = api_key

    def _serve(self, client: socket.socket) -> None:
        """One request at a time; the broker answers them in order as well."""
        # Clients hang up in the midst of a request, and the broker may be gone.
        with suppress(OSError), client, socket.create_connection(self._target) as broker:
            while request := _frame(client):
                is_lost = int.from_bytes(request[4:6]) == self._losing
                broker.sendall(request)
                answer = _frame(broker)
                if is_lost:
                    self._losing = None
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(BUFFER_BYTES):
                        pass
                    self.has_lost.set()
                    return
                client.sendall(answer)


def _frame(connection: socket.socket) -> bytes:
    """A request or an answer with its size before it; empty at the end of the connection."""
    frame, size = b"", 4
    while len(frame) < size:
        part = connection.recv(size - len(frame))
        if not part:
            return b""
        frame += part
        if len(frame) == 4:
            size += int.from_bytes(frame)
    return frame


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0
