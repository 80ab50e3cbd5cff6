"""Handles a request: finds the operation, decodes, calls the handler, encodes the response."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from goqueue.loop.promise import Promise
from goqueue.model.compression import meter
from goqueue.model.errors import GoQueueError, QuotaExceeded, TooManyFailures
from goqueue.model.session import ConnectedClient, Session
from goqueue.wire.carrier import problems
from goqueue.wire.carrier.browsers import MODE, SECURITY_HEADERS, Origins
from goqueue.wire.carrier.calls import (
    NOT_CACHED,
    Call,
    Dialect,
    Raw,
    Request,
    Response,
    encode,
    promised,
)
from goqueue.wire.carrier.connection import LARGE_ANSWER_BYTES, Connection
from goqueue.wire.carrier.credentials import (
    API_KEY,
    AUTHORIZATION,
    Authenticator,
    HeaderAuthenticator,
    challenge,
)
from goqueue.wire.carrier.problems import (
    InternalError,
    MethodNotAllowed,
    NodeStarting,
    UnsupportedMediaType,
)
from goqueue.wire.carrier.routing import Operation, Routes
from goqueue.wire.complaints import Complaints

if TYPE_CHECKING:
    from goqueue.broker.gate.grants import Meter
    from goqueue.wire.carrier.front_end import CarriedFrontEnd

PATHS_KNOWN_MAX = 1000
PATH_LENGTH_KNOWN_MAX = 500
HOSTS_SEEN_MAX = 1_000  # cached values of the header
# Limit of the responses made in one turn of the event loop; further requests wait for the next
# turn, so that other connections are served too.
TURN_BYTES_MAX = 1 << 20
TURN_UNPACKED_BYTES_MAX = 32 << 20
STOP_MS_MAX = 5_000  # then requests still in progress get no response
_JSON = b"application/json"
_RETRY = b"retry-after: 1\r\n"
_CURL_DEFAULT = b"application/x-www-form-urlencoded"
_ANY_HOST = "*"
_LOCAL_HOST = "localhost"

_log = logging.getLogger(__name__)


class Application:
    """The application of one HTTP listener.

    A listener may have its own dialect, and so may each first segment of the path.
    """

    has_pages = True  # whether links of other sites may lead here
    checks_all = False  # whether every request needs the authenticator, also without credentials

    def __init__(
        self,
        front: CarriedFrontEnd,
        dialect: Dialect | None = None,
        *,
        mounts: Mapping[str, Dialect] | None = None,
    ) -> None:
        self.front = front
        self._dialect = dialect
        self._mounts = dict(mounts or {})
        self.limits = front.limits
        self.client_limits = front.gate.client_limits
        self.clock = front.gate.clock
        self.hosts: Hosts | None = None  # host names accepted in requests; None: any
        self.origins = Origins(has_pages=self.has_pages)  # whose pages may use this listener
        self.is_health_open = True  # without credentials
        self.are_metrics_open = False
        self.complaints = Complaints(_log)
        self.busy: set[Connection] = set()
        self.receiving_bytes = 0
        self._turn_bytes = 0
        self._unpacked_before = meter.bytes_total  # this turn
        self._is_turn_ending = False
        self._put_off: deque[Connection] = deque()
        self.is_stopping = False
        self._routes = Routes(front.operations)
        self._found: dict[tuple[str, str], tuple[Operation, dict[str, str], Dialect | None]] = {}
        self._stopped: Callable[[], None] | None = None
        self._second = 0
        self._heads: dict[tuple[int, bytes, bytes], bytes] = {}

    def connect(
        self,
        client: ConnectedClient,
        *,
        send: Callable[[list[Any]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> Connection:
        """The protocol side of a new connection."""
        return Connection(self, client, send=send, close=close, unblock=unblock)

    def open_to(
        self, origins: Iterable[str], *, is_health_open: bool, are_metrics_open: bool = False
    ) -> None:
        """Let pages of other origins use this listener, and open some routes to everybody."""
        self.origins = Origins(origins, has_pages=self.has_pages)
        self.is_health_open = is_health_open
        self.are_metrics_open = are_metrics_open

    def authenticator(self, client: ConnectedClient, session: Session) -> Authenticator:
        """Return what gives the requests of a connection their sessions."""
        authentication = self.front.gate.authentication
        return HeaderAuthenticator(
            authentication,
            client,
            session,
            is_open=self.is_health_open,
            are_metrics_open=self.are_metrics_open,
        )

    def has_credentials(self, headers: Mapping[bytes, bytes], url: bytes) -> bool:
        """Whether a request has credentials, right or wrong."""
        return AUTHORIZATION in headers or API_KEY in headers

    # Requests

    def find(self, request: Request) -> Operation:
        """Find an operation. Recent paths are cached, because clients repeat a few of them."""
        place = (request.method, request.path)
        found = self._found.get(place)
        if found is None:
            request.dialect = dialect = self._dialect_of(request.path)
            routes = self._routes if dialect is None else dialect
            found = (*routes.find(*place), dialect)
            if len(self._found) >= PATHS_KNOWN_MAX:
                self._found.clear()
            if len(request.path) <= PATH_LENGTH_KNOWN_MAX:
                self._found[place] = found
        operation, request.parameters, request.dialect = found
        return operation

    def perform(self, operation: Operation, request: Request, call: Call) -> Promise[Any]:
        """Call the handler of an operation; anything it raises is in the promise."""
        limits = None
        if self.client_limits.is_active:
            limits = self.client_limits.meter(call.session)
        try:
            if limits is not None and not operation.is_early:
                limits.admit_request()
            if not self.front.is_ready and not operation.is_early:
                raise NodeStarting(self.front.waits_for)
            if request.dialect is not None:
                arguments = request.dialect.arguments(operation, request)
            elif operation.has_body:
                _check_media_type(request)
                arguments = operation.decoder(request.body)
            else:
                arguments = operation.decoder(request.query)
        except Exception as error:
            refused: Promise[Any] = Promise()
            refused.reject(error)
            return refused
        request.trace = request.trace or getattr(arguments, "trace_header", b"")
        # Without a time, a queue may have one.
        call.may_wait = operation.is_waiting and getattr(arguments, "wait_ms", None) != 0
        if limits is not None and limits.measures_time:
            return _measured(limits, partial(_handled, operation, self.front, call, arguments))
        return _handled(operation, self.front, call, arguments)

    # Responses

    def preflight(self, request: Request) -> list[bytes] | None:
        """The answer to a browser that asks what a page may send; None for other requests."""
        response = self.origins.preflight(request)
        if response is None:
            return None
        return self._whole(request, response.status, b"", b"", response.headers)

    def answer(self, operation: Operation, request: Request, value: Any) -> list[bytes]:
        """The bytes of a response: in one piece, or head and large body separately."""
        request.error_codes = getattr(value, "error_codes", ())
        cache = NOT_CACHED
        if isinstance(value, Raw):
            status, media_type, cache = value.status, value.media_type, value.cache
            body, more = value.body, value.headers
        elif request.dialect is not None:
            status, media_type, body, more = request.dialect.answer(request, value)
        else:
            status, media_type, more = operation.status, _JSON, b""
            body = b"" if status == HTTPStatus.NO_CONTENT else encode(value)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            more += _RETRY
        return self._whole(request, status, media_type, body, more, cache=cache)

    def refusal(self, request: Request, error: Exception) -> list[bytes]:
        """The bytes of an error response."""
        status, media_type, body, more = self._refused(request, error)
        if isinstance(error, MethodNotAllowed):
            more += b"allow: %s\r\n" % ", ".join(error.allowed).encode()
        elif isinstance(error, QuotaExceeded | TooManyFailures):
            more += _later(error)
        elif status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
            more += _RETRY
        elif status == HTTPStatus.UNAUTHORIZED:
            more += challenge(request.header(MODE))
        return self._whole(request, status, media_type, body, more)

    def _refused(self, request: Request, error: Exception) -> Response:
        """The response for an error. Internal errors are logged, and not shown to the client."""
        if not isinstance(error, GoQueueError):
            _log.error("%s %r failed", request.method, request.path, exc_info=error)
            error = InternalError()
        request.error_codes = (self.code_of(error),)
        dialect = request.dialect or self._dialect
        if dialect is not None:
            return dialect.refuse(request, error)
        problem = problems.problem_of(error)
        return Response(problem.status, problems.MEDIA_TYPE, encode(problem))

    def code_of(self, error: GoQueueError) -> str:
        """The name of an error in metrics."""
        return error.code

    def _dialect_of(self, path: str) -> Dialect | None:
        if not self._mounts:
            return self._dialect
        first = path.partition("/")[2].partition("/")[0]
        return self._mounts.get(first, self._dialect)

    def head(self, status: int, media_type: bytes, cache: bytes = NOT_CACHED) -> bytes:
        """The status line and headers; the caller adds the length and an empty line."""
        second = self.clock.wall_ms() // 1000
        if second != self._second:
            self._second = second
            self._heads.clear()
        known = self._heads.get((status, media_type, cache))
        if known is None:
            known = b"HTTP/1.1 %d %s\r\ndate: %s\r\ncache-control: %s\r\n%s" % (
                status,
                HTTPStatus(status).phrase.encode(),
                formatdate(second, usegmt=True).encode(),
                cache,
                SECURITY_HEADERS,
            )
            if media_type:
                known += b"content-type: %s\r\n" % media_type
            self._heads[status, media_type, cache] = known
        return known

    def _whole(
        self,
        request: Request,
        status: int,
        media_type: bytes,
        body: bytes,
        more: bytes = b"",
        *,
        cache: bytes = NOT_CACHED,
    ) -> list[bytes]:
        if request.extra:
            more += request.extra
        if not request.is_kept_alive:
            more += b"connection: close\r\n"
        if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            return [b"%s%s\r\n" % (self.head(status, b"", cache), more)]
        length = len(body)
        if request.method == "HEAD":
            body = b""
        head = b"%s%scontent-length: %d\r\n\r\n" % (
            self.head(status, media_type, cache),
            more,
            length,
        )
        return [head, body] if len(body) >= LARGE_ANSWER_BYTES else [head + body]

    # Turns

    @property
    def is_turn_over(self) -> bool:
        """Whether this turn of the event loop has used up its share of responses."""
        return (
            self._turn_bytes > TURN_BYTES_MAX
            or meter.bytes_total - self._unpacked_before > TURN_UNPACKED_BYTES_MAX
        )

    def made(self, count: int) -> None:
        """Count a response of this many bytes in the current turn."""
        self._turn_bytes += count
        self.end_turn()

    def put_off(self, connection: Connection) -> None:
        """Schedule the requests of the connection for a later turn."""
        self._put_off.append(connection)
        self.end_turn()

    def end_turn(self) -> None:
        """Start the next turn after everything that is ready now has been served."""
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self.clock.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_bytes, self._unpacked_before = 0, meter.bytes_total
        self._is_turn_ending = False
        while self._put_off and not self.is_turn_over:
            self._put_off.popleft().resume()
        if self._put_off:
            self.end_turn()

    # Stopping

    def stop(self, done: Callable[[], None]) -> None:
        """Refuse new requests, end long polls, and call `done` when all others are answered."""
        self.is_stopping = True
        self._stopped = done
        for connection in list(self.busy):
            connection.stop_waiting()
        if self.busy:
            self.clock.call_later(STOP_MS_MAX, self._give_up)
        else:
            self._give_up()

    def rested(self, connection: Connection) -> None:
        """Note that a connection is idle."""
        self.busy.discard(connection)
        if self.is_stopping and not self.busy:
            self._give_up()

    def _give_up(self) -> None:
        if self._stopped is not None:
            done, self._stopped = self._stopped, None
            done()


def _handled(
    operation: Operation, front: CarriedFrontEnd, call: Call, arguments: Any
) -> Promise[Any]:
    """Call a handler; anything it raises is in the promise."""
    try:
        return promised(operation.handler(front, call, arguments))
    except Exception as error:
        refused: Promise[Any] = Promise()
        refused.reject(error)
        return refused


def _measured(limits: Meter, handle: Callable[[], Promise[Any]]) -> Promise[Any]:
    """Charge the time that a handler takes before it waits for something."""
    started_ns = perf_counter_ns()
    answer = handle()
    limits.worked((perf_counter_ns() - started_ns) // 1_000)
    limits.take_wait()
    return answer


def _later(error: QuotaExceeded | TooManyFailures) -> bytes:
    """The headers that say when to try again, and by which quota."""
    seconds = max(1, -(-error.wait_ms // 1_000))
    headers = b"retry-after: %d\r\n" % seconds
    if isinstance(error, QuotaExceeded):
        limit = error.limit.encode()
        headers += b'ratelimit-policy: "%s";q=%d;w=1\r\n' % (limit, error.per_second)
        headers += b'ratelimit: "%s";r=0;t=%d\r\n' % (limit, seconds)
    return headers


class Hosts:
    """The host names that a node accepts in requests, as a protection against DNS rebinding.

    The name of another site can be made to resolve to the address of a node. To the browser the
    node is then part of that site, whose pages can read its responses. The browser still sends the
    name in `Host`, so unknown names are refused. IP addresses cannot be rebound and are always
    accepted, as are the names of this machine.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.lower().rstrip(".") for name in names if name}
        self._seen: dict[bytes, bool] = {}

    def include(self, header: bytes) -> bool:
        """Whether a request with this `Host` is accepted; browsers always send the header."""
        known = self._seen.get(header)
        if known is None:
            known = self._is_known(header)
            if len(self._seen) >= HOSTS_SEEN_MAX:
                self._seen.clear()
            self._seen[header] = known
        return known

    def _is_known(self, header: bytes) -> bool:
        host = _without_port(header.decode("latin-1").strip()).lower().rstrip(".")
        if not host or _ANY_HOST in self._names or host in self._names:
            return True
        if host == _LOCAL_HOST or host.endswith(f".{_LOCAL_HOST}"):
            return True  # Browsers do not resolve these by DNS.
        try:
            ip_address(host)
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _check_media_type(request: Request) -> None:
    """Accept only JSON, which pages of other sites cannot send without a CORS preflight."""
    if not request.body:
        return
    media_type = request.header(b"content-type")
    if media_type[:16].lower() == _JSON and media_type[16:17] in (b"", b";", b" "):
        return
    # `curl -d` sends JSON with another content type; a browser always sends its origin.
    is_curl = media_type in (b"", _CURL_DEFAULT) and not request.header(b"origin")
    if not is_curl:
        raise UnsupportedMediaType(media_type.decode("latin-1"))
