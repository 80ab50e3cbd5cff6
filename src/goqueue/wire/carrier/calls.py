"""Requests and responses: as received, as passed to a handler and as returned by it.

A handler gets the decoded body or query and a `Call`. It returns a struct, which is encoded as
JSON, or a `Raw` response, or a `Stream`; now or, as a promise or a coroutine, later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from time import perf_counter
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from goqueue.loop.promise import Cancellation, Promise, start
from goqueue.model.errors import GoQueueError
from goqueue.model.session import NOBODY, Session
from goqueue.wire.carrier.bodies import Body
from goqueue.wire.carrier.explaining import explain
from goqueue.wire.carrier.problems import (
    HttpError,
    InvalidField,
    MalformedJson,
    MissingHost,
    UnsupportedCoding,
    UnsupportedTransfer,
)

if TYPE_CHECKING:
    from goqueue.wire.carrier.routing import Operation

QUERY_FIELDS_MAX = 100
TRACE_PARENT = b"traceparent"  # of W3C Trace Context
NOT_CACHED = b"no-store"  # how clients may keep a response that does not say
NAME_LENGTH_MAX = 249
UNKNOWN_API = "unknown"  # in metrics, of requests for no operation


# Requests


class Parser(Protocol):
    def get_http_version(self) -> str: ...


def fault_in(headers: Mapping[bytes, bytes], parser: Parser | None) -> HttpError | None:
    """Return why a request with these headers is refused; None if it can be read.

    A proxy would take it for another request, or it needs what is not done here.
    """
    if b"host" not in headers and parser is not None and parser.get_http_version() != "1.0":
        return MissingHost()
    transfer = headers.get(b"transfer-encoding", b"chunked").strip().lower()
    if transfer != b"chunked":
        return UnsupportedTransfer(transfer.decode("latin-1"))
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    if coding != b"identity":
        return UnsupportedCoding(coding.decode("latin-1"))
    return None


class Request:
    """A request as received."""

    __slots__ = (
        "api",
        "body",
        "dialect",
        "error_codes",
        "extra",
        "headers",
        "is_encrypted",
        "is_kept_alive",
        "method",
        "parameters",
        "path",
        "query",
        "started",
        "trace",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes = b"",
        headers: dict[bytes, bytes] | None = None,
        *,
        is_kept_alive: bool = True,
    ) -> None:
        self.method = method
        self.path = path  # still escaped, because an escaped slash does not separate segments
        self.query = query
        self.headers = headers or {}
        self.is_kept_alive = is_kept_alive
        self.body = b""
        self.parameters: dict[str, str] = {}
        self.dialect: Dialect | None = None
        self.extra = b""  # further header lines of the response
        self.is_encrypted = False  # received over TLS
        self.started = perf_counter()
        self.api = UNKNOWN_API  # the name of its operation, when it is found
        # Of the response, if it is an error; of the failed entries of a batch, if it is not.
        self.error_codes: Collection[str] = ()
        self.trace = self.header(TRACE_PARENT)  # a header that may name the trace it belongs to

    def copy(self) -> Request:
        """A copy with its own body, because the buffer of a request is released after reading."""
        copied = Request(self.method, self.path, self.query, self.headers)
        copied.body, copied.parameters, copied.dialect = self.body, self.parameters, self.dialect
        copied.is_encrypted = self.is_encrypted
        return copied

    def header(self, name: bytes) -> bytes:
        return self.headers.get(name, b"")


class Call:
    """The context of a request besides its body or query."""

    __slots__ = (
        "accept",
        "cancellation",
        "last_event_id",
        "may_wait",
        "parameters",
        "session",
        "trace_parent",
    )

    def __init__(
        self,
        parameters: dict[str, str],
        *,
        session: Session = NOBODY,
        last_event_id: str = "",
    ) -> None:
        self.parameters = parameters
        self.session = session
        self.last_event_id = last_event_id
        self.accept = b""  # the media types that the client accepts
        self.may_wait = False  # whether the client lets the request wait for something
        self.trace_parent = b""  # the header `traceparent`, as it was received
        self.cancellation = Cancellation()

    def text(self, name: str) -> str:
        """A part of the path, unescaped."""
        text = self.parameters[name]
        if "%" not in text:
            return text
        try:
            return unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise InvalidField(f"{text[:100]!r} is not UTF-8 when unescaped.", field=name) from None

    def name(self, kind: str) -> str:
        """The name of a group or another thing in the path, unescaped."""
        name = self.text(kind)
        if len(name) > NAME_LENGTH_MAX:
            raise InvalidField(
                f"A {kind}'s name has at most {NAME_LENGTH_MAX} characters.", field=kind
            )
        return name

    def number(self, name: str, *, most: int) -> int:
        text = self.text(name)
        if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most:
            return int(text)
        raise InvalidField(
            f"{text[:100]!r} in the path is not a whole number from 0 to {most}.", field=name
        )

    @property
    def client_host(self) -> str:
        return self.session.client_host

    @property
    def is_cancelled(self) -> bool:
        """Whether the client has disconnected, or the node is stopping."""
        return self.cancellation.is_cancelled

    def on_cancel(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` if the client disconnects before the response."""
        self.cancellation.on_cancel(cancel)

    def cancel(self) -> None:
        self.cancellation.cancel()


class BodyDecoder:
    """Decodes the JSON body of one operation; an empty body is an empty object."""

    def __init__(self, kind: type[Body]) -> None:
        self.kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def __call__(self, data: bytes) -> Any:
        try:
            return self._decode(data or b"{}")
        except msgspec.ValidationError as error:
            raise explain(str(error), self.kind) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedJson(f"The body is not JSON: {error}.") from None
        except RecursionError:
            raise MalformedJson("The body is nested too deeply.") from None


class QueryDecoder:
    """Decodes the query string of one operation; every field may be given once."""

    def __init__(self, kind: type[Body]) -> None:
        self.kind = kind
        self._is_empty = not kind.__struct_fields__

    def __call__(self, data: bytes) -> Any:
        if not data:
            return self._convert({})
        try:
            pairs = parse_qsl(
                data.decode("ascii"),
                keep_blank_values=True,
                strict_parsing=False,
                errors="strict",
                max_num_fields=QUERY_FIELDS_MAX,
            )
        except ValueError as error:
            raise InvalidField(f"The query cannot be read: {error}.") from None
        given: dict[str, str] = {}
        for name, text in pairs:
            if name in given:
                raise InvalidField(f"{name[:100]!r} is given twice in the query.", field=name[:100])
            given[name] = text
        return self._convert(given)

    def _convert(self, given: dict[str, str]) -> Any:
        try:
            return msgspec.convert(given, self.kind, strict=False)
        except msgspec.ValidationError as error:
            raise explain(str(error), self.kind) from None


# Responses


class Raw:
    """A response other than the JSON of its operation, or with another status."""

    __slots__ = ("body", "cache", "headers", "media_type", "status")

    def __init__(
        self,
        body: bytes,
        media_type: bytes,
        *,
        status: int = 200,
        headers: bytes = b"",
        cache: bytes = NOT_CACHED,
    ) -> None:
        self.body = body
        self.cache = cache  # whether, and how long, clients may keep it
        self.media_type = media_type
        self.status = status
        self.headers = headers  # further header lines


class Stream:
    """A response that continues for as long as the client is connected.

    The type of every response is checked against this class, so it is not an abstract one, for
    which that check costs ten times as much.
    """

    is_over = False

    def opening(self) -> bytes:
        """The bytes sent at once, so that the client sees that it is connected."""
        raise NotImplementedError

    def next(self) -> Promise[bytes]:
        """A promise of the next bytes to send."""
        raise NotImplementedError

    def close(self) -> None:
        """End the stream, because the client has disconnected."""
        raise NotImplementedError


class Response(NamedTuple):
    """A response before it is encoded."""

    status: int
    media_type: bytes
    body: bytes
    headers: bytes = b""  # further header lines


class Dialect(Protocol):
    """A dialect of a listener: its own routes, and its own format of responses and errors.

    Most of the API uses the format of `application`. A part that is compatible with another product
    must respond as the clients of that product expect.
    """

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """The operation for a path, and the parts of it that are parameters."""

    def arguments(self, operation: Operation, request: Request) -> Any:
        """The input of the handler besides the path."""

    def answer(self, request: Request, value: Any) -> Response: ...

    def refuse(self, request: Request, error: GoQueueError) -> Response: ...


_encode_into = msgspec.json.Encoder().encode_into


def encode(answer: Any) -> bytes:
    """The JSON of a response.

    Without memory for it this raises MemoryError; the encoder's own buffer, when it cannot grow,
    ends the process instead.
    """
    buffer = bytearray()
    _encode_into(answer, buffer)
    return bytes(buffer)


def promised(answer: Any) -> Promise[Any]:
    """The result of a handler (a value, a promise or a coroutine) as a promise."""
    if isinstance(answer, Promise):
        return answer
    promise: Promise[Any] = Promise()
    if isinstance(answer, CoroutineType):
        start(answer, promise.settle)
    else:
        promise.resolve(answer)
    return promise
