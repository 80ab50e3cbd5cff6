"""A connection to a running broker that sends one request at a time."""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType
from typing import Any, Protocol, Self

from goqueue.wire.kafka.api import Api
from goqueue.wire.kafka.headers import decode_response_header, encode_request_header
from goqueue.wire.kafka.messages import API_BY_NAME, api_versions

ANSWER_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.05
_API_VERSIONS_VERSION = 0


class Ask(Protocol):
    """Sends a request, in the newest version that both sides speak unless told."""

    def __call__(self, name: str, request: Any, version: int | None = None) -> Any: ...

    def pause(self) -> None:
        """Let the broker do what it does after it has answered."""


class Asking:
    """Any broker that speaks Kafka's protocol, behind a socket."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX)
        self._correlation_id = 0
        request = api_versions.ApiVersionsRequest()
        answer = self("ApiVersions", request, _API_VERSIONS_VERSION)
        self.versions = {one.api_key: one.max_version for one in answer.api_keys}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def __call__(self, name: str, request: Any, version: int | None = None) -> Any:
        return self.take(*self.send(name, request, version))

    def send(self, name: str, request: Any, version: int | None = None) -> tuple[Api, int]:
        """Send a request, and do not wait for its answer."""
        api = API_BY_NAME[name]
        if version is None:
            version = min(api.version_stable_max, self.versions.get(api.key, api.version_max))
        self._correlation_id += 1
        header = encode_request_header(
            api, version=version, correlation_id=self._correlation_id, client_id="judge"
        )
        body = header + api.codec.encode_request(request, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        return api, version

    def take(self, api: Api, version: int) -> Any:
        """Return the next answer, which is one of this API."""
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = self._exactly(size)
        _, start = decode_response_header(answer, api, version)
        return api.codec.decode_response(answer, version, start)

    def pause(self) -> None:
        time.sleep(PAUSE_SECONDS)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("The broker closed the connection.")
            data += piece
        return data
