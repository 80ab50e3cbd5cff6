"""One Kafka connection without its socket: request bytes in, answers out, in order.

Requests may be answered late and out of turn; each takes a place in a line, and answers leave
the line from its head. When too many requests wait, the connection asks not to be read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from goqueue.loop.promise import Promise, start
from goqueue.model.errors import MalformedRequest, RequestTooLarge
from goqueue.model.session import Session
from goqueue.wire.foreign import FIRST_BYTES, explained, protocol_of
from goqueue.wire.kafka.api import API_VERSIONS_KEY
from goqueue.wire.kafka.messages.header import decode_request_header
from goqueue.wire.kafka.produce_fast_path import RUN_REQUESTS_MAX, produce_one, read_run
from goqueue.wire.kafka.request_reference import VERSION_MAX, VERSION_MIN
from goqueue.wire.parts import Part

if TYPE_CHECKING:
    from goqueue.wire.kafka.front_end import FrontEnd, Served

_LENGTH = Struct(">i")
_HEAD = Struct(">hhi")
_RESPONSE_HEAD = Struct(">ii")
_RESPONSE_HEAD_FLEXIBLE = Struct(">iix")

_PRODUCE_KEY = 0
_METADATA_KEY = 3
_EARLY_KEYS = (API_VERSIONS_KEY, _METADATA_KEY)
_NO_TAGS = b"\x00"

_log = logging.getLogger(__name__)


class Waiting(Protocol):
    """A request whose answer has its place in the line."""

    is_done: bool
    parts: list[Part]


class Call:
    """One request: who asks, in which version, and the place of its answer in the line."""

    __slots__ = (
        "connection",
        "correlation_id",
        "is_done",
        "parts",
        "served",
        "session",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        served: Served,
        version: int,
        correlation_id: int,
    ) -> None:
        self.connection = connection
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.session = connection.session
        self.is_done = False
        self.parts: list[Part] = []

    @property
    def client_id(self) -> str:
        return self.session.client_id

    @property
    def client_host(self) -> str:
        """The client's address in the form that Kafka's tools show and parse."""
        return f"/{self.session.client_host}"

    def answer(self, response: Any) -> None:
        """Put the answer in its place; it leaves when all before it have left."""
        served = self.served
        parts: list[Any] = [b""]
        try:
            served.write_response(response, self.version, parts)
        except Exception as error:
            self.fail(error)
            return
        length = sum(map(len, parts)) + 4
        if served.has_flexible_header(self.version):
            parts[0] = _RESPONSE_HEAD_FLEXIBLE.pack(length + 1, self.correlation_id)
        else:
            parts[0] = _RESPONSE_HEAD.pack(length, self.correlation_id)
        self.parts = parts
        self.is_done = True
        self.connection.advance()
        if self.parts:  # It waits for those before it.
            self.connection.early_bytes += length

    def answer_nothing(self) -> None:
        """The client wants no answer."""
        self.is_done = True
        self.connection.advance()

    def settle(self, response: Any, error: Exception | None) -> None:
        if error is None:
            self.answer(response)
        else:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """A handler has failed in a way it does not know: end the connection, not the node."""
        self.connection.fail(self.served.name, error)


class Connection:
    """The protocol state of one client's connection."""

    __slots__ = (
        "_calls",
        "_client_id_bytes",
        "_close",
        "_front",
        "_is_held",
        "_outbox",
        "_outbox_bytes",
        "_send",
        "_unblock",
        "cancellations",
        "early_bytes",
        "grants",
        "is_closed",
        "is_flushing",
        "round_heard",
        "session",
        "unsent_bytes",
    )

    def __init__(
        self,
        front: FrontEnd,
        client_host: str,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> None:
        self._front = front
        self._send = send
        self._close = close
        self._unblock = unblock
        self._calls: deque[Waiting] = deque()
        self._outbox: list[Part] = []
        self._outbox_bytes = 0
        self._client_id_bytes = b""
        self._is_held = False
        self.identify(Session(front.listener, client_host=client_host))
        self.is_closed = False
        self.is_flushing = False
        self.round_heard = -1  # when the gatherer of small batches has last taken one from here
        self.unsent_bytes = 0  # kept up to date by whoever owns the socket
        self.early_bytes = 0  # of answers that are made and wait for those before them
        self.cancellations: dict[object, Callable[[], None]] = {}

    def identify(self, session: Session) -> None:
        """Use this identity from now on, and what it may write and read."""
        self.session = session
        self.grants = self._front.gate.grants(session)

    @property
    def is_blocked(self) -> bool:
        """Whether requests must wait until earlier answers are made and taken."""
        front = self._front
        return (
            len(self._calls) >= front.requests_in_flight_max
            or self._is_held
            or self.unsent_bytes + self._outbox_bytes + self.early_bytes > front.unsent_bytes_max
        )

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for us, not we for the client."""
        return bool(self._calls) and not self.unsent_bytes

    def receive(self, data: memoryview) -> int:
        """Handle the whole requests that `data` begins with; return how many bytes they have."""
        at, end, front = 0, len(data), self._front
        gatherer, one_by_one = front.gatherer, 0
        while end - at >= 4 and not self.is_closed and not self.is_blocked:
            if one_by_one:
                one_by_one -= 1
            elif self._client_id_bytes and front.is_ready:
                run = read_run(
                    data, at, self._client_id_bytes, front.run_frame_bytes_max, RUN_REQUESTS_MAX
                )
                if run is not None and gatherer.take(self, data, at, run):
                    at = run[0]
                    continue
                # What a run needed a closer look for is found by looking at each of its requests.
                one_by_one = 0 if run is None else run[2] - 1
            (length,) = _LENGTH.unpack_from(data, at)
            if not 8 <= length <= front.request_bytes_max:
                protocol = protocol_of(bytes(data[at : at + FIRST_BYTES]))
                if protocol in ("TLS", "HTTP"):
                    raise MalformedRequest(explained(protocol, spoken="Kafka"))
                raise _wrong_length(length, front.request_bytes_max)
            stop = at + 4 + length
            if stop > end:
                break
            if not front.is_ready and self._must_wait(data[at + 4 : stop]):
                break
            if front.is_turn_over and _HEAD.unpack_from(data, at + 4)[0] == _PRODUCE_KEY:
                self._is_held = True
                front.put_off(self)
                break
            if self.round_heard == gatherer.rounds:
                gatherer.store()  # What this client has sent before comes first.
            self._handle(data[at + 4 : stop])
            at = stop
        return at

    def _must_wait(self, frame: memoryview) -> bool:
        """While the node is not ready it tells where to go, and keeps what else is asked."""
        if _HEAD.unpack_from(frame)[0] in _EARLY_KEYS:
            return False
        self._is_held = True
        self._front.hold(self)
        return True

    def release(self) -> None:
        self._is_held = False
        if not self.is_closed:
            self._unblock()

    def wanted_bytes(self, data: memoryview) -> int:
        """How many bytes the request has that `data` begins with."""
        if len(data) < 4:
            return 4
        return 4 + int(_LENGTH.unpack_from(data, 0)[0])

    def stand_in_line(self, call: Waiting) -> None:
        self._calls.append(call)

    def advance(self) -> None:
        """Send the answers at the head of the line, together with what else this turn brings."""
        calls, outbox = self._calls, self._outbox
        was_full = len(calls) >= self._front.requests_in_flight_max
        was_early = self.early_bytes > 0
        while calls and calls[0].is_done:
            call = calls.popleft()
            self._outbox_bytes += sum(map(len, call.parts))
            outbox += call.parts
            call.parts = []
        if was_early:
            early = [part for call in calls if call.is_done for part in call.parts]
            self.early_bytes = sum(map(len, early))
        if outbox and not self.is_flushing:
            self.is_flushing = True
            self._front.flush_later(self)
        # Of what blocks, only the length of the line can have become less here.
        if was_full and not self.is_blocked:
            self._unblock()

    def answer_at_once(self, answer: bytes) -> bool:
        """Send an answer that has not stood in line; False, and nothing done, if others do."""
        if self._calls:
            return False
        self._outbox.append(answer)
        self._outbox_bytes += len(answer)
        if not self.is_flushing:
            self.is_flushing = True
            self._front.flush_later(self)
        return True

    def flush(self) -> None:
        self.is_flushing = False
        if self._outbox and not self.is_closed:
            outbox, self._outbox = self._outbox, []
            self._outbox_bytes = 0
            self._send(outbox)

    def closed(self) -> None:
        """The socket is gone; nobody waits for the answers any more."""
        self.is_closed = True
        cancellations, self.cancellations = self.cancellations, {}
        for cancel in cancellations.values():
            cancel()
        self._calls.clear()
        self._outbox.clear()
        if self._is_held:
            self._front.let_go(self)
        # The socket's side refers to this one; both go at once when this one lets go of it.
        self._send, self._close, self._unblock = _send_nothing, _do_nothing, _do_nothing

    def fail(self, what: str, error: Exception) -> None:
        _log.error("%s from %s failed", what, self.session.client_host, exc_info=error)
        if not self.is_closed:
            self._close()

    def refuse(self, reason: str) -> None:
        """End the connection because of what its client did."""
        _log.info("closing the connection of %s: %s", self.session.client_host, reason)
        if not self.is_closed:
            self._close()

    def _handle(self, frame: memoryview) -> None:
        key, version, correlation_id = _HEAD.unpack_from(frame)
        served = self._front.served.get(key)
        if served is None:
            raise MalformedRequest(f"API {key} is not served here.")
        if not served.version_min <= version <= served.version_max:
            if key != API_VERSIONS_KEY:
                raise MalformedRequest(f"{served.name} version {version} is not served here.")
            # The client may read this answer only in the oldest version.
            call = Call(self, served, 0, correlation_id)
            self._calls.append(call)
            call.answer(self._front.unsupported_api_versions())
            return
        header_version = 2 if served.is_flexible(version) else 1
        start_of_body = self._read_client_id(frame, header_version)
        if (
            key == _PRODUCE_KEY
            and VERSION_MIN <= version <= VERSION_MAX
            and produce_one(
                self,
                frame,
                version=version,
                correlation_id=correlation_id,
                at=start_of_body,
            )
        ):
            return
        request = served.decode_request(frame, version, start_of_body)
        call = Call(self, served, version, correlation_id)
        self._calls.append(call)
        try:
            result = served.handler(call, request)
        except Exception as error:
            call.fail(error)
            return
        if result.__class__ is served.response_type:
            call.answer(result)
        elif result.__class__ is Promise:
            result.then(call.settle)
        elif result is not None:
            start(result, call.settle)

    def _read_client_id(self, frame: memoryview, header_version: int) -> int:
        """Read the rest of the header; clients repeat theirs, so the last one is remembered."""
        known = self._client_id_bytes
        end = 8 + len(known)
        if known and frame[8:end] == known:
            if header_version == 1:
                return end
            if frame[end : end + 1] == _NO_TAGS:
                return end + 1
        header, body = decode_request_header(frame, header_version)
        client_id = header.client_id or ""
        self.identify(msgspec.structs.replace(self.session, client_id=client_id))
        self._client_id_bytes = bytes(frame[8 : 10 + len(client_id.encode())])
        return body


def _send_nothing(_: list[Part]) -> None:
    """The socket is gone."""


def _do_nothing() -> None:
    """The socket is gone."""


def _wrong_length(length: int, most: int) -> MalformedRequest:
    if length > most:
        return RequestTooLarge(f"A request of {length} bytes is over the limit of {most}.")
    return MalformedRequest(f"A request cannot have {length} bytes.")
