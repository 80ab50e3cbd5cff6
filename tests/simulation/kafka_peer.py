"""A Kafka client without a socket: requests in bytes to the front end, answers in bytes back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.wire.kafka.api import Api
from goqueue.wire.kafka.front_end import FrontEnd
from goqueue.wire.kafka.headers import decode_response_header, encode_request_header
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.parts import FileRange, Part

Run = Callable[[Callable[[], bool]], None]
OPEN = ListenerRules("kafka")


class KafkaPeer:
    """One connection. `run` lets time go by until something is so."""

    def __init__(
        self,
        front: FrontEnd,
        run: Run,
        *,
        client_id: str = "peer",
        rules: ListenerRules = OPEN,
        host: str = "192.0.2.1",
    ) -> None:
        self.received = b""
        self.is_closed = False
        self.is_unblocked = False
        self.client_id = client_id
        self._run = run
        self._correlation_id = 0
        self.connection = front.connect(
            ConnectedClient(host, rules),
            send=self._take,
            close=self._close,
            unblock=self._unblock,
        )

    def call(self, name: str, version: int, request: Any) -> Any:
        """Send a request and wait for its answer."""
        api = API_BY_NAME[name]
        self.send(self.frame(api, version, request))
        self.wait()
        return self.take_answer(api, version)

    def wait(self) -> None:
        """Let time go by until there is an answer."""
        self._run(lambda: self.has_answer)

    def frame(self, api: Api, version: int, request: Any) -> bytes:
        self._correlation_id += 1
        header = encode_request_header(
            api, version=version, correlation_id=self._correlation_id, client_id=self.client_id
        )
        body = header + api.codec.encode_request(request, version)
        return struct.pack(">i", len(body)) + body

    def send(self, data: bytes) -> int:
        """Hand over bytes as if they had just been received; how many were used."""
        return self.connection.receive(memoryview(bytearray(data)))

    @property
    def has_answer(self) -> bool:
        if self.is_closed:
            raise ConnectionError("the front end has closed the connection")
        return len(self.received) >= 4 and len(self.received) >= 4 + self._length()

    def take_answer(self, api: Api, version: int) -> Any:
        end = 4 + self._length()
        answer, self.received = self.received[4:end], self.received[end:]
        _, start = decode_response_header(answer, api, version)
        return api.codec.decode_response(answer, version, start)

    def _length(self) -> int:
        return int(struct.unpack_from(">i", self.received)[0])

    def _take(self, parts: list[Part]) -> None:
        for part in parts:
            if isinstance(part, FileRange):
                self.received += part.file.read(part.position, part.length)
            else:
                self.received += bytes(part)

    def _close(self) -> None:
        self.is_closed = True
        self.connection.closed()

    def _unblock(self) -> None:
        self.is_unblocked = True
