"""One HTTP/1.1 connection without its socket: bytes in, responses out, in order.

A connection handles one request at a time; pipelined requests wait in a short queue, and while the
queue is full the socket is not read. Each request must be received within a timeout and within
limits on the size of its head and body.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import httptools

from goqueue.model.errors import (
    AuthenticationFailed,
    AuthenticationRequired,
    GoQueueError,
    QuotaReached,
)
from goqueue.model.session import ConnectedClient, Session
from goqueue.wire.carrier.browsers import HSTS, ORIGIN, SITE
from goqueue.wire.carrier.calls import TRACE_PARENT, Call, Request, Stream, fault_in
from goqueue.wire.carrier.credentials import API_KEY, AUTHORIZATION, ONCE, Authenticator
from goqueue.wire.carrier.problems import (
    BodyTooLarge,
    HeadTooLarge,
    InternalError,
    MalformedHttp,
    NodeStopping,
    ReceiveMemoryFull,
    RepeatedHeader,
    SlowRequest,
    UnknownHost,
)
from goqueue.wire.carrier.session_watch import SessionWatch
from goqueue.wire.foreign import FIRST_BYTES, explained, protocol_of

if TYPE_CHECKING:
    from goqueue.loop.clock import Handle
    from goqueue.loop.promise import Promise
    from goqueue.wire.carrier.application import Application
    from goqueue.wire.carrier.routing import Operation

HEAD_BYTES_MAX = 64 << 10
WAITING_MAX = 16  # requests queued behind the one in progress
WAITING_BYTES_MAX = 1 << 20  # of their bodies; the request that exceeds it is the last
# Beyond it, the client must read before its next request is handled.
UNSENT_BYTES_MAX = 1 << 20
LARGE_ANSWER_BYTES = 64 << 10  # responses that count in the turn that makes them
STREAM_UNSENT_BYTES_MAX = 256 << 10  # then a stream waits for its reader
# Of a request that will be refused for lack of credentials; larger ones are not read to the end.
UNKNOWN_BODY_BYTES_MAX = 64 << 10
# A body beyond the limit is still read and discarded up to here, because a client that is
# disconnected while it sends never receives the error response.
DISCARD_BYTES_MAX = 64 << 20

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_EVENTS = b"text/event-stream; charset=utf-8"

_log = logging.getLogger(__name__)


class Connection:
    """The protocol state of one client connection, with the callbacks of the parser."""

    def __init__(
        self,
        application: Application,
        client: ConnectedClient,
        *,
        send: Callable[[list[Any]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> None:
        self.session = application.front.gate.authentication.session(client)
        self._client = client
        self._measured = application.front.gate.requests.listener(client.rules.name)
        self._waits_since = 0.0  # 0 unless the request in progress waits for something
        must_authenticate = client.rules.must_authenticate
        is_authenticated = self.session.is_authenticated
        self._must_authenticate = must_authenticate and not is_authenticated
        self._is_unknown = False  # the request being received has no credentials, and needs some
        self._is_checked = must_authenticate or is_authenticated or application.checks_all
        # The session of requests without credentials, which does not end.
        self._anonymous = None if is_authenticated else self.session
        self._seat = application.front.gate.seat()
        self._authenticator: Authenticator | None = None  # made when it is needed first
        self._extra = HSTS if client.rules.is_encrypted else b""
        self.is_closed = False
        self._application = application
        self._send = send
        self._close = close
        self._unblock = unblock
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._unsent_bytes = 0
        self._is_last = False  # nothing more is read; closed when all is sent
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0
        self._header_bytes = 0
        self._is_in_head = False
        self._is_receiving = False
        self._receive_timer: Handle | None = None
        self._watch: SessionWatch | None = None
        self._reserved_bytes = 0
        self._requests: deque[Request | GoQueueError] = deque()
        self._waiting_bytes = 0
        self._working: Request | None = None
        self._operation: Operation | None = None
        self._call: Call | None = None
        self._answer: Promise[Any] | None = None  # of the call, until it resolves
        self._stream: Stream | None = None
        self._is_stream_held = False
        self._is_chunked = False
        self._is_put_off = False  # continues in a later turn of the event loop

    # Called by the socket

    @property
    def is_blocked(self) -> bool:
        return (
            len(self._requests) >= WAITING_MAX
            or self._waiting_bytes > WAITING_BYTES_MAX
            or self._unsent_bytes > UNSENT_BYTES_MAX
        )

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for a response, so that the connection is not idle."""
        return self._working is not None and not self._unsent_bytes

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    @unsent_bytes.setter
    def unsent_bytes(self, count: int) -> None:
        """The unsent bytes, set by the socket; when they shrink, paused work continues."""
        was_held = self._unsent_bytes > UNSENT_BYTES_MAX >= count
        self._unsent_bytes = count
        if was_held and self._requests and self._working is None:
            self._application.clock.call_soon(self.work)
        if self._is_stream_held and count < STREAM_UNSENT_BYTES_MAX:
            self._is_stream_held = False
            self._application.clock.call_soon(self._stream_on)
        if self._is_last and not count:
            self._application.clock.call_soon(self._close)

    def wanted_bytes(self, data: memoryview) -> int:
        return 0  # the parser keeps partial input

    def receive(self, data: memoryview) -> int:
        """Consume all bytes, and handle the requests that are complete."""
        size = len(data)
        if self._is_last or self._parser is None:
            return size
        self._head_bytes += size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No protocol upgrade is supported; the request is answered as it is.
            if self._requests and isinstance(self._requests[-1], Request):
                self._requests[-1].is_kept_alive = False
        except httptools.HttpParserCallbackError:
            _log.exception("a request of %s could not be handled", self.session.client_host)
            self._refuse(InternalError())
        except httptools.HttpParserError:
            protocol = protocol_of(bytes(data[:FIRST_BYTES]))
            if protocol in ("TLS", "Kafka"):
                text = explained(protocol, spoken="HTTP")
                self._application.complaints.tell(self.session.client_host, text)
            self._refuse(MalformedHttp())
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HeadTooLarge(HEAD_BYTES_MAX))
        elif self._is_receiving:
            self._reserve()
        if self._working is None:
            self.work()
        return size

    def closed(self) -> None:
        """The socket was closed: cancel the request in progress."""
        self.is_closed = self._is_last = True
        self._stop_receiving()
        self._seat.leave()
        self._requests.clear()
        self._body = []
        if self._call is not None:
            self._call.cancel()
        if self._answer is not None:
            self._answer.abandon()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._rest()
        # Parser and socket refer to this connection; dropping them breaks the cycle.
        self._parser = None
        self._send, self._close, self._unblock = _send_nothing, _do_nothing, _do_nothing

    def stop_waiting(self) -> None:
        """End long polls and streams, because the node is stopping."""
        if self._stream is not None:
            self._end_stream()
        elif self._operation is not None and self._operation.is_waiting and self._call is not None:
            self._call.cancel()
            self._settled(None, NodeStopping())

    # Called by the parser

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", {}, []
        self._body_bytes = self._head_bytes = self._header_bytes = 0
        self._is_in_head = self._is_receiving = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer after a chunked body."""
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > HEAD_BYTES_MAX:
            self._refuse(HeadTooLarge(HEAD_BYTES_MAX))
            return
        if not self._is_in_head:
            return  # Trailers are not for credentials: proxies do not check what they contain.
        name = name.lower()
        if name in self._headers and name in ONCE:
            self._refuse(RepeatedHeader(name.decode("latin-1")))
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        if (fault := fault_in(self._headers, self._parser)) is not None:
            self._refuse(fault)
        if self._must_authenticate:
            self._is_unknown = not self._application.has_credentials(self._headers, self._url)
        if b"expect" in self._headers and self._headers[b"expect"].lower() == b"100-continue":
            length = self._headers.get(b"content-length", b"0")
            if int(length) > self._application.limits.body_bytes_max:
                self._refuse(BodyTooLarge(self._application.limits.body_bytes_max))
            elif self._working is None:
                self._send([_CONTINUE])

    def on_body(self, data: bytes) -> None:
        if self._is_last:
            return
        self._body_bytes += len(data)
        if self._is_unknown and self._body_bytes > UNKNOWN_BODY_BYTES_MAX:
            self._refuse(AuthenticationRequired())
            return
        limit = self._application.limits.body_bytes_max
        if self._body_bytes > limit:
            self._body.clear()
            if self._body_bytes > limit + DISCARD_BYTES_MAX:
                self._refuse(BodyTooLarge(limit))
        else:
            self._body.append(data)

    def on_message_complete(self) -> None:
        self._stop_receiving()
        if self._is_last or self._parser is None:
            return
        limit = self._application.limits.body_bytes_max
        if self._body_bytes > limit:
            self._requests.append(BodyTooLarge(limit))
            return
        url = self._url
        path, _, query = (url if url.startswith(b"/") else _target(url)).partition(b"?")
        request = Request(
            self._parser.get_method().decode("ascii"),
            path.decode("latin-1"),
            query,
            self._headers,
            is_kept_alive=self._parser.should_keep_alive(),
        )
        request.extra = self._extra
        request.is_encrypted = self._client.rules.is_encrypted
        body = self._body
        request.body = body[0] if len(body) == 1 else b"".join(body)
        self._requests.append(request)
        self._waiting_bytes += len(request.body)
        self._body = []

    # Incomplete requests

    def _reserve(self) -> None:
        """Start the timeout of an incomplete request, and count its memory."""
        application = self._application
        if self._receive_timer is None:
            self._receive_timer = application.clock.call_later(
                application.limits.receive_ms_max, self._too_slow
            )
        kept_bytes = self._body_bytes if self._body else 0
        application.receiving_bytes += kept_bytes - self._reserved_bytes
        self._reserved_bytes = kept_bytes
        if application.receiving_bytes > application.limits.receiving_bytes_max:
            self._refuse(ReceiveMemoryFull())

    def _too_slow(self) -> None:
        self._receive_timer = None
        self._refuse(SlowRequest())
        if self._working is None:
            self.work()

    def _stop_receiving(self) -> None:
        self._is_receiving = self._is_in_head = False
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None
        self._application.receiving_bytes -= self._reserved_bytes
        self._reserved_bytes = 0

    def _refuse(self, error: GoQueueError) -> None:
        """Send an error response, in order, and read nothing more."""
        if not self._is_last:
            self._is_last = True
            self._stop_receiving()
            self._body = []
            self._requests.append(error)

    # Handling requests

    def work(self) -> None:
        """Handle queued requests until one has to wait, or the client must read responses first."""
        application = self._application
        while (
            self._requests
            and self._working is None
            and self._unsent_bytes <= UNSENT_BYTES_MAX
            and not self._is_put_off
            and not self.is_closed
        ):
            was_blocked = self.is_blocked
            request = self._requests.popleft()
            if isinstance(request, Request):
                self._waiting_bytes -= len(request.body)
            if was_blocked and not self.is_blocked:
                self._unblock()
            if isinstance(request, GoQueueError):
                refused = Request("", "", is_kept_alive=not self._is_last)
                refused.extra = self._extra
                self._finish(refused, application.refusal(refused, request))
                continue
            if application.is_stopping:
                request.is_kept_alive = False
                self._finish(request, application.refusal(request, NodeStopping()))
                continue
            if application.hosts is not None:
                host = request.header(b"host")
                if not application.hosts.include(host):
                    error = UnknownHost(host.decode("latin-1"))
                    self._finish(request, application.refusal(request, error))
                    continue
            self._begin(request)

    def _begin(self, request: Request) -> None:
        application, headers = self._application, request.headers
        try:
            is_browser = ORIGIN in headers or SITE in headers
            if is_browser and (allowed := self._allow_browser(request)) is not None:
                self._finish(request, allowed)
                return
            operation = application.find(request)
            request.api = operation.name
            if is_browser:
                application.origins.check(request)
            if operation.is_waiting and application.is_turn_over:
                self._put_off(request)
                return
            session: Session | Promise[Session] | None = None
            if self._is_checked or AUTHORIZATION in headers or API_KEY in headers:
                session = self._session_of(request, operation)
        except GoQueueError as error:
            self._finish(request, application.refusal(request, error))
            return
        if session is None:
            self._perform(request, operation, self.session)
        elif isinstance(session, Session):
            self._perform(request, operation, session)
        else:
            self._working, self._operation, self._answer = request, operation, session
            application.busy.add(self)
            session.then(self._authenticated)

    def _allow_browser(self, request: Request) -> list[bytes] | None:
        """Let pages of some origins read the response; answer what they may send."""
        application = self._application
        request.extra = self._extra + application.origins.sharing(request)
        return application.preflight(request)

    def _session_of(self, request: Request, operation: Operation) -> Session | Promise[Session]:
        if self._authenticator is None:
            self._authenticator = self._application.authenticator(self._client, self.session)
        return self._authenticator.session_of(request, operation)

    def _authenticated(self, session: Session | None, error: Exception | None) -> None:
        """The credentials of the request in progress were checked; later requests have waited."""
        request, operation = self._working, self._operation
        if request is None or operation is None or self.is_closed:
            return  # The client has disconnected.
        if session is None:
            self._settled(None, error)
        elif self._application.is_stopping:
            self._settled(None, NodeStopping())
        else:
            self._perform(request, operation, session)

    def _perform(self, request: Request, operation: Operation, session: Session) -> None:
        application = self._application
        try:
            if application.client_limits.is_active and not operation.is_early:
                self._seat.take(session)
        except QuotaReached as error:
            self._turn_away(request, error)
            return
        call = Call(request.parameters, session=session)
        call.trace_parent = request.header(TRACE_PARENT)
        call.accept = request.header(b"accept")
        if operation.is_stream:
            call.last_event_id = request.header(b"last-event-id").decode("latin-1")
        self._working, self._operation, self._call = request, operation, call
        promise: Promise[Any] = application.perform(operation, request, call)
        request.body = b""  # already decoded, and the response may take long
        if not promise.is_done:
            application.busy.add(self)
            self._answer = promise
            if call.may_wait:
                self._waits_since = perf_counter()
        may_last = operation.is_waiting or operation.is_stream
        if may_last and session is not self._anonymous and session.is_authenticated:
            authentication = application.front.gate.authentication
            self._watch = SessionWatch(
                application.clock, authentication, session, self._session_ended
            )
        promise.then(self._settled)

    def _turn_away(self, request: Request, error: QuotaReached) -> None:
        """Refuse a request because its user has too many connections, and close this one."""
        request.is_kept_alive = False
        self._rest()
        self._finish(request, self._application.refusal(request, error))

    def _session_ended(self) -> None:
        if self._stream is not None:
            self._end_stream()
        elif self._call is not None:
            self._call.cancel()
            self._settled(None, AuthenticationFailed("The session has ended; authenticate again."))

    def _settled(self, value: Any, error: Exception | None) -> None:
        request, operation = self._working, self._operation
        if request is None or operation is None or self.is_closed:
            return  # already answered, or the client has disconnected
        if self._waits_since:
            request.started += perf_counter() - self._waits_since
            self._waits_since = 0.0
        if isinstance(value, Stream):
            self._start_stream(request, value)
            return
        application = self._application
        try:
            if error is None:
                answer = application.answer(operation, request, value)
            else:
                answer = application.refusal(request, error)
        except Exception as fault:
            answer = application.refusal(request, fault)
        self._rest()
        self._finish(request, answer)
        if self._requests:
            application.clock.call_soon(self.work)

    def _measure(self, request: Request) -> None:
        """Count a request when its response begins."""
        measured = self._measured.apis[request.api]
        seconds = perf_counter() - request.started
        if request.trace:
            measured.answered(seconds, request.trace)
        else:
            measured.duration.observe(seconds)
        for code in request.error_codes:
            measured.failed(code)

    def _finish(self, request: Request, answer: list[bytes]) -> None:
        self._measure(request)
        self._send_whole(request, answer)

    def _send_whole(self, request: Request, answer: list[bytes]) -> None:
        if not request.is_kept_alive:
            self._is_last = True
            self._requests.clear()
        if len(answer) > 1:
            self._application.made(len(answer[1]))
        self._send(answer)
        if self._is_last and not self._unsent_bytes and not self.is_closed:
            self._close()

    def resume(self) -> None:
        """Continue in a later turn."""
        self._is_put_off = False
        self.work()

    def _put_off(self, request: Request) -> None:
        """Wait for a later turn, because enough messages were read in this one."""
        self._requests.appendleft(request)
        self._waiting_bytes += len(request.body)
        self._is_put_off = True
        self._application.put_off(self)

    def _rest(self) -> None:
        self._working = self._operation = self._call = self._answer = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._application.rested(self)

    # Streams

    def _start_stream(self, request: Request, stream: Stream) -> None:
        """Use the connection for a stream from now on."""
        application = self._application
        is_chunked = request.is_kept_alive
        head = application.head(200, _EVENTS) + request.extra
        head += b"transfer-encoding: chunked\r\n" if is_chunked else b"connection: close\r\n"
        if request.method == "HEAD":
            stream.close()
            self._rest()
            self._finish(request, [head + b"\r\n"])
            return
        self._measure(request)
        application.busy.add(self)
        self._stream = stream
        self._is_chunked = is_chunked
        self._send([head + b"\r\n", *self._chunk(stream.opening())])
        application.clock.call_soon(self._stream_on)

    def _stream_on(self) -> None:
        if self._stream is None or self._stream.is_over:
            return
        if self._application.is_turn_over:
            self._application.end_turn()
            self._application.clock.call_soon(self._stream_on)
        else:
            self._stream.next().then(self._stream_arrived)

    def _stream_arrived(self, data: bytes | None, error: Exception | None) -> None:
        stream = self._stream
        if stream is None or self.is_closed:
            return
        if data is None:
            assert error is not None
            request = self._working
            assert request is not None
            self._application.refusal(request, error)  # only logged, because the response has begun
            self._end_stream()
            return
        if len(data) >= LARGE_ANSWER_BYTES:
            self._application.made(len(data))
        self._send(self._chunk(data))
        if stream.is_over:
            self._end_stream()
        elif self._unsent_bytes >= STREAM_UNSENT_BYTES_MAX:
            self._is_stream_held = True
        else:
            self._application.clock.call_soon(self._stream_on)

    def _end_stream(self) -> None:
        stream, request = self._stream, self._working
        if stream is None or request is None:
            return
        self._stream, self._is_stream_held = None, False
        stream.close()
        self._rest()
        request.is_kept_alive = False
        self._send_whole(request, [_LAST_CHUNK if self._is_chunked else b""])

    def _chunk(self, data: bytes) -> list[bytes]:
        return [b"%x\r\n" % len(data), data, b"\r\n"] if self._is_chunked else [data]


def _send_nothing(_: list[Any]) -> None:
    """The socket is gone."""


def _do_nothing() -> None:
    """The socket is gone."""


def _target(url: bytes) -> bytes:
    """Path and query of a target in the absolute form, which servers must accept too."""
    _, has_scheme, rest = url.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if has_scheme else url
