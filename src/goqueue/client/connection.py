"""One blocking connection to one broker.

Kafka sends the responses of a connection in the order of the requests, so several requests may be
in flight: `send` returns a `Pending`, and `receive` waits for its response and stores those that
arrive before it. After an error the connection is closed and every open `Pending` fails.

A connection with credentials authenticates when it opens, and again, between two requests, before
the time for which the broker accepted them is over (KIP-368).
"""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from struct import Struct
from typing import Any, Final, Generic, Protocol, TypeVar

from goqueue.client.addresses import Address
from goqueue.client.buffers import ReceiveBuffers
from goqueue.client.errors import (
    UNSUPPORTED_VERSION,
    ConnectionLost,
    HungUp,
    TlsFailed,
    Unreachable,
    check,
)
from goqueue.client.security.login import log_in
from goqueue.client.security.settings import TlsSettings
from goqueue.client.security.tls import ALERT, context_of, permanent_failure
from goqueue.client.settings import ClientSettings
from goqueue.client.versions import API_BY_MODULE, VersionRange, choose_version
from goqueue.model.errors import GoQueueError, MalformedRequest, RequestTimedOut
from goqueue.wire.kafka.api import Api
from goqueue.wire.kafka.messages import api_versions
from goqueue.wire.kafka.messages import header as header_codec
from goqueue.wire.kafka.messages.header import RequestHeader
from goqueue.wire.kafka.primitives import Buffer

Request = TypeVar("Request")
Response = TypeVar("Response")
Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)

_LENGTH: Final = Struct(">i")
_ERROR_CODE: Final = Struct(">h")
_API_VERSIONS_FIRST: Final = 3  # brokers that do not support it respond in version 0
# Which part of a session passes before the client authenticates again; not all clients at once.
_SESSION_USED_MIN: Final = 0.85
_SESSION_USED_MAX: Final = 0.95


class Codec(Protocol[Request_contra, Response_co]):
    """The functions of a module of `wire.kafka.messages` that a client uses."""

    __name__: str

    def write_request(
        self, message: Request_contra, version: int, chunks: list[Buffer]
    ) -> None: ...

    def decode_response(self, data: Buffer, version: int, start: int = 0) -> Response_co: ...


class Pending(Generic[Response]):
    """A response that has not been received yet."""

    __slots__ = ("_frame", "_read", "correlation_id", "error", "has_come")

    def __init__(self, correlation_id: int, read: Callable[[Buffer], Response]) -> None:
        self.correlation_id = correlation_id
        self.error: GoQueueError | None = None
        self.has_come = False
        self._read = read
        self._frame: Buffer = b""

    def come(self, frame: Buffer) -> None:
        self.has_come, self._frame = True, frame

    def fail(self, error: GoQueueError) -> None:
        self.has_come, self.error = True, error

    def take(self) -> Response:
        """The response, decoded on the first call."""
        if self.error is not None:
            raise self.error
        return self._read(self._frame)


class Socket(Protocol):
    """The part of a socket that a connection uses."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def settimeout(self, value: float | None, /) -> None: ...
    def close(self) -> None: ...


class Connection:
    """A negotiated connection. It belongs to one thread."""

    def __init__(self, sock: Socket, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.is_open = True
        self.offered: Mapping[int, VersionRange] = {}
        self._socket = sock
        self._settings = settings
        self._correlation_id = 0
        self._waiting: deque[Pending[Any]] = deque()
        self._buffers = ReceiveBuffers(settings.buffers_kept_max)
        self._is_used = False  # whether the broker has answered more than the negotiation
        self._log_in_at: float | None = None  # when to authenticate again

    @classmethod
    def open(cls, address: Address, settings: ClientSettings) -> Connection:
        """Connect, negotiate the versions of all APIs, and authenticate."""
        try:
            sock = socket.create_connection(address, settings.connect_ms_max / 1000)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unreachable(f"No broker answers at {address} ({reason.lower()}).") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls is not None:
            sock = _encrypt(sock, address, settings.tls)
        connection = cls(sock, address, settings)
        try:
            connection.negotiate()
            connection.log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    def log_in(self) -> None:
        """Authenticate with the credentials of the settings, if there are any."""
        if self._settings.sasl is None:
            return
        self._log_in_at = None
        lifetime_ms = log_in(self, self._settings.sasl)
        if lifetime_ms > 0:
            part = random.uniform(_SESSION_USED_MIN, _SESSION_USED_MAX)
            self._log_in_at = time.monotonic() + part * lifetime_ms / 1000

    def negotiate(self) -> None:
        """Request the versions that the broker supports."""
        response = self._ask_versions(_API_VERSIONS_FIRST)
        if response.error_code == UNSUPPORTED_VERSION:
            response = self._ask_versions(0)
        check(response.error_code)
        self.offered = {
            each.api_key: VersionRange(each.min_version, each.max_version)
            for each in response.api_keys
        }

    def offers(self, codec: Codec[Any, Any]) -> bool:
        """Whether the broker supports this API."""
        return _api_of(codec).key in self.offered

    def version_of(self, codec: Codec[Any, Any]) -> int:
        """The version in which requests of this API are sent."""
        api = _api_of(codec)
        return choose_version(api, self.offered.get(api.key))

    def call(
        self, codec: Codec[Request, Response], request: Request, *, extra_ms: int = 0
    ) -> Response:
        """Send a request and wait for its response; the request allows the wait `extra_ms`."""
        return self.receive(self.send(codec, request), extra_ms=extra_ms)

    def send(self, codec: Codec[Request, Response], request: Request) -> Pending[Response]:
        """Send a request; its response is received later."""
        if self._log_in_at is not None and time.monotonic() >= self._log_in_at:
            self._log_in_again()
        api, version = _api_of(codec), self.version_of(codec)
        pending = self._pend(api, version, codec.decode_response)
        self._write(api, version, codec, request)
        self._waiting.append(pending)
        return pending

    def send_only(self, codec: Codec[Request, Response], request: Request) -> None:
        """Send a request without a response."""
        if self._log_in_at is not None and time.monotonic() >= self._log_in_at:
            self._log_in_again()
        self._correlation_id += 1
        self._write(_api_of(codec), self.version_of(codec), codec, request)

    def receive(self, pending: Pending[Response], *, extra_ms: int = 0) -> Response:
        """Wait for the response of `pending`."""
        deadline = time.monotonic() + (self._settings.request_ms_max + extra_ms) / 1000
        while not pending.has_come:
            self._take_next(deadline)
        return pending.take()

    def close(self) -> None:
        """Close the connection; requests without a response fail."""
        self._break(ConnectionLost(f"The connection to {self.address} was closed."))

    def _take_next(self, deadline: float) -> None:
        self._waiting[0].come(self._read_frame(deadline))
        self._waiting.popleft()
        self._is_used = bool(self.offered)

    def _log_in_again(self) -> None:
        """Authenticate when nothing is in flight; responses that come before are kept."""
        deadline = time.monotonic() + self._settings.request_ms_max / 1000
        while self._waiting:
            self._take_next(deadline)
        try:
            self.log_in()
        except GoQueueError:
            self.close()
            raise

    def _ask_versions(self, version: int) -> api_versions.ApiVersionsResponse:
        api = _api_of(api_versions)
        request = api_versions.ApiVersionsRequest("goqueue", _software_version())
        pending = self._pend(api, version, _decode_versions)
        self._write(api, version, api_versions, request)
        self._waiting.append(pending)
        return self.receive(pending)

    def _pend(
        self, api: Api, version: int, decode: Callable[[Buffer, int, int], Response]
    ) -> Pending[Response]:
        self._correlation_id += 1
        expected = self._correlation_id

        def read(frame: Buffer) -> Response:
            found, start = header_codec.decode_response_header(
                frame, api.response_header_version(version)
            )
            if found.correlation_id != expected:
                self.close()
                raise MalformedRequest(
                    f"{self.address} answered request {found.correlation_id} instead of {expected}."
                )
            return decode(frame, version, start)

        return Pending(expected, read)

    def _write(self, api: Api, version: int, codec: Codec[Request, Any], request: Request) -> None:
        header = RequestHeader(api.key, version, self._correlation_id, self._settings.client_id)
        chunks: list[Buffer] = [
            header_codec.encode_request_header(header, api.request_header_version(version))
        ]
        codec.write_request(request, version, chunks)
        length = sum(map(_byte_length, chunks))
        if not self.is_open:
            raise ConnectionLost(f"The connection to {self.address} is closed.")
        try:
            self._socket.settimeout(self._settings.request_ms_max / 1000)
            self._socket.sendall(b"".join((_LENGTH.pack(length), *chunks)))
        except OSError as error:
            raise self._break(self._loss(error)) from error

    def _read_frame(self, deadline: float) -> Buffer:
        head = bytearray(_LENGTH.size)
        self._fill(memoryview(head), deadline)
        (length,) = _LENGTH.unpack(head)
        if head.startswith(ALERT) and self._settings.tls is None and not self.offered:
            raise self._break(TlsFailed(f"{self.address} requires TLS; connect with it (tls)."))
        if not 0 <= length <= self._settings.answer_bytes_max:
            raise self._break(
                MalformedRequest(
                    f"{self.address} sent a frame of {length} bytes; is it a Kafka listener?"
                )
            )
        frame = self._buffers.take(length)
        self._fill(frame, deadline)
        return frame

    def _fill(self, view: memoryview, deadline: float) -> None:
        if not self.is_open:
            raise ConnectionLost(f"The connection to {self.address} is closed.")
        try:
            while view:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                received = self._socket.recv_into(view)
                if received == 0:
                    raise ConnectionResetError("the broker hung up")
                view = view[received:]
        except OSError as error:
            raise self._break(self._loss(error)) from error

    def _loss(self, error: OSError) -> GoQueueError:
        if isinstance(error, TimeoutError):
            return RequestTimedOut(f"{self.address} did not answer in time.")
        if self._settings.tls is not None and (failed := permanent_failure(error, self.address)):
            return failed
        reason = error.strerror or str(error)
        if not self._is_used:
            hung_up = HungUp(
                f"{self.address} closed the connection before it answered ({reason.lower()}); "
                f"{self._advice()}"
            )
            hung_up.lacks_tls = self._settings.tls is None and not self.offered
            return hung_up
        return ConnectionLost(f"The connection to {self.address} was lost ({reason.lower()}).")

    def _advice(self) -> str:
        if self.offered:
            has_credentials = self._settings.sasl is not None
            return "try again." if has_credentials else "it may require credentials (sasl)."
        if self._settings.tls is None:
            return "it may require TLS (tls)."
        return "it may be a listener without TLS, or require a certificate of the client."

    def _break(self, error: GoQueueError) -> GoQueueError:
        self.is_open = False
        self._socket.close()
        while self._waiting:
            self._waiting.popleft().fail(error)
        return error


def _encrypt(sock: socket.socket, address: Address, settings: TlsSettings) -> socket.socket:
    try:
        return context_of(settings).wrap_socket(sock, server_hostname=address.host)
    except OSError as error:
        sock.close()
        if (failed := permanent_failure(error, address)) is not None:
            raise failed from error
        if isinstance(error, TimeoutError):
            raise Unreachable(f"{address} did not answer the TLS handshake in time.") from error
        raise HungUp(
            f"{address} closed the connection during the TLS handshake; it may be a listener "
            "without TLS."
        ) from error
    except BaseException:
        sock.close()
        raise


def _api_of(codec: Codec[Any, Any]) -> Api:
    return API_BY_MODULE[codec.__name__.rpartition(".")[2]]


@cache
def _software_version() -> str:
    try:
        return package_version("goqueue")
    except PackageNotFoundError:  # the code was copied without its metadata, as Spark does
        return "0"


def _decode_versions(data: Buffer, version: int, start: int) -> api_versions.ApiVersionsResponse:
    # A broker that does not support our version of this request responds in version 0.
    (error_code,) = _ERROR_CODE.unpack_from(data, start)
    if error_code == UNSUPPORTED_VERSION:
        version = 0
    return api_versions.decode_response(data, version, start)


def _byte_length(chunk: Buffer) -> int:
    return chunk.nbytes if isinstance(chunk, memoryview) else len(chunk)
