"""A Kafka client that sends whatever it is told to, over a socket, in the name of a user."""

from __future__ import annotations

import socket
import struct
from typing import Any

from goqueue.wire.kafka.headers import decode_response_header, encode_request_header
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from goqueue.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

SECONDS_MAX = 20


class RawClient:
    """One connection, logged in with a password."""

    def __init__(self, bootstrap: str, user: str, password: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), SECONDS_MAX)
        self._correlation_id = 0
        self.call("SaslHandshake", SaslHandshakeRequest("PLAIN"), version=1)
        message = f"\0{user}\0{password}".encode()
        answer = self.call("SaslAuthenticate", SaslAuthenticateRequest(message), version=2)
        assert answer.error_code == 0, answer

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, name: str, request: Any, *, version: int | None = None) -> Any:
        """Send a request, in the newest version unless told otherwise, and return the answer."""
        api = API_BY_NAME[name]
        version = api.version_stable_max if version is None else version
        self._correlation_id += 1
        header = encode_request_header(
            api, version=version, correlation_id=self._correlation_id, client_id="raw"
        )
        body = header + api.codec.encode_request(request, version)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        answer = self._exactly(int.from_bytes(self._exactly(4), "big"))
        _, at = decode_response_header(answer, api, version)
        return api.codec.decode_response(answer, version, at)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("closed by the broker")
            data += piece
        return data
