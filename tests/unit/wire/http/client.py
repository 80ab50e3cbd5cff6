"""An HTTP client without sockets: the bytes of requests go in, parsed answers come out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httptools

from goqueue.model.session import ConnectedClient, ListenerRules
from goqueue.wire.carrier.application import Application
from goqueue.wire.carrier.connection import Connection
from goqueue.wire.carrier.front_end import Limits
from goqueue.wire.http.front_end import FrontEnd
from goqueue.wire.http.operations import OPERATIONS
from tests.simulation.world import World


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reader:
    """Takes answers out of a stream of bytes."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.answers.append(Answer())

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answers[-1].headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        self.answers[-1].status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.answers[-1].body += data

    def on_message_complete(self) -> None:
        self.answers[-1].is_whole = True


class Wire:
    """One connection, with the socket played by the test."""

    def __init__(self, application: Application, rules: ListenerRules | None = None) -> None:
        self.reader = Reader()
        self.sent = bytearray()
        self.is_closed = False
        self.unblocked = 0
        self.is_stuck = False  # the client takes nothing: what is sent stays unsent
        self.connection: Connection = application.connect(
            ConnectedClient("10.0.0.7", rules or ListenerRules(application.front.listener)),
            send=self._send,
            close=self.close,
            unblock=self._unblock,
        )

    def feed(self, data: bytes) -> None:
        taken = self.connection.receive(memoryview(data))
        assert taken == len(data)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.connection.closed()

    @property
    def answers(self) -> list[Answer]:
        return self.reader.answers

    def _send(self, parts: list[bytes]) -> None:
        assert not self.is_closed
        data = b"".join(parts)
        self.sent += data
        if self.is_stuck:
            self.connection.unsent_bytes += len(data)
        self.reader.feed(data)

    def _unblock(self) -> None:
        self.unblocked += 1


class Client:
    """Sends requests to a node in a simulated world."""

    def __init__(self, world: World, limits: Limits | None = None) -> None:
        self.world = world
        self.front = FrontEnd(world.broker.gate, limits or Limits(), OPERATIONS)
        self.application = Application(self.front)
        self.rules: ListenerRules | None = None

    def wire(self) -> Wire:
        return Wire(self.application, self.rules)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Answer:
        """One request on a connection of its own, and its answer."""
        wire = self.wire()
        wire.feed(request(method, path, body, headers=headers, **query))
        self.world.run_until(lambda: bool(wire.answers) and wire.answers[-1].is_whole)
        return wire.answers[-1]

    def get(self, path: str, **query: object) -> Any:
        """The JSON of a successful answer."""
        return self._good(self.send("GET", path, **query))

    def post(self, path: str, body: Any = None) -> Any:
        return self._good(self.send("POST", path, {} if body is None else body))

    def refused(self, method: str, path: str, body: Any = None, **query: object) -> Answer:
        """An answer that must be a refusal."""
        answer = self.send(method, path, body, **query)
        assert answer.status >= 400, answer
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == answer.status
        return answer

    @staticmethod
    def _good(answer: Answer) -> Any:
        assert 200 <= answer.status < 300, answer
        return answer.json if answer.body else None


def request(
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    **query: object,
) -> bytes:
    """The bytes of a request. A trailing underscore keeps a name such as `from_` legal."""
    if query:
        path += "?" + urlencode({name.rstrip("_"): value for name, value in query.items()})
    lines = {"host": "node"}
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines |= {"content-type": "application/json", "content-length": str(len(data))}
    lines |= headers or {}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data
