"""One Kafka connection without its socket: request bytes in, responses out, in order.

Requests may complete out of order; each has an entry in a queue, and responses are sent from the
head of the queue. If too many requests are pending, the connection asks not to be read
(back-pressure).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from struct import Struct
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from goqueue.loop.promise import Promise, start
from goqueue.model.errors import MalformedRequest, RequestTooLarge
from goqueue.model.session import ConnectedClient, Session
from goqueue.wire.foreign import FIRST_BYTES, explained, protocol_of
from goqueue.wire.kafka.api import API_VERSIONS_KEY, not_served
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.messages.header import decode_request_header
from goqueue.wire.kafka.produce_fast_path import RUN_REQUESTS_MAX, produce_one, read_run
from goqueue.wire.kafka.request_reference import VERSION_MAX, VERSION_MIN
from goqueue.wire.kafka.response_errors import name_of
from goqueue.wire.parts import Part

if TYPE_CHECKING:
    from goqueue.broker.gate.grants import Meter
    from goqueue.loop.clock import Handle
    from goqueue.wire.kafka.front_end import FrontEnd, Served

_LENGTH = Struct(">i")
_HEAD = Struct(">hhi")
_KEY = Struct(">h")
_RESPONSE_HEAD = Struct(">ii")
_RESPONSE_HEAD_FLEXIBLE = Struct(">iix")

# Why a connection is not read, as bits.
NOT_READY = 1  # until the node is, or until the next turn
_MUTED = 2  # until its client has waited as long as its quotas demand

_PRODUCE_KEY = 0
_METADATA_KEY = 3
_EARLY_KEYS = (API_VERSIONS_KEY, _METADATA_KEY)
# How long a long poll may still find something when it delays responses that are ready.
LONG_POLL_GRACE_MS = 10
# Of requests other than Produce, which are decoded item by item while nobody else is served: for 8
# MiB of names that takes seconds. Offsets of 100,000 partitions have about 3 MB.
SMALL_REQUEST_BYTES_MAX = 8 << 20
_NO_TAGS = b"\x00"

_log = logging.getLogger(__name__)


class Waiting(Protocol):
    """A request whose response has an entry in the queue."""

    is_done: bool
    parts: list[Part]


class Call:
    """One request: its client, its version, and the entry of its response in the queue."""

    __slots__ = (
        "connection",
        "correlation_id",
        "is_done",
        "parts",
        "served",
        "session",
        "started",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        served: Served,
        version: int,
        correlation_id: int,
        started: float,
    ) -> None:
        """`started` is when the request was received, in seconds."""
        self.connection = connection
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.started = started
        self.session = connection.session
        self.is_done = False
        self.parts: list[Part] = []

    @property
    def client_id(self) -> str:
        return self.session.client_id

    @property
    def client_host(self) -> str:
        """The client's address in the format that Kafka's tools show and parse."""
        return f"/{self.session.client_host}"

    def answer(self, response: Any) -> None:
        """Set the response; it is sent when all before it have been sent."""
        served = self.served
        if self.connection.grants.meter is not None:
            self.connection.tell_throttle(response)
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
        self._measure(served.errors_in(response))
        self.parts = parts
        self.is_done = True
        self.connection.advance()
        if self.parts:  # Earlier responses are not ready.
            self.connection.early_bytes += length

    def answer_nothing(self) -> None:
        """Complete a request that has no response."""
        self._measure(())
        self.is_done = True
        self.connection.advance()

    def settle(self, response: Any, error: Exception | None) -> None:
        if error is None:
            self.answer(response)
        else:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Close the connection after an unexpected error of a handler; the node continues."""
        self._measure((ErrorCode.UNKNOWN_SERVER_ERROR,))
        self.connection.fail(self.served.name, error)

    def leave_out(self, seconds: float) -> None:
        """Do not count time in which the request waited because its client wanted it to."""
        self.started += seconds

    def _measure(self, codes: Collection[int]) -> None:
        """Count the request, its duration and the errors that its client is told."""
        measured = self.connection.measured.apis[self.served.name]
        measured.duration.observe(perf_counter() - self.started)
        for code in codes:
            if code:
                measured.failed(name_of(code))


class Connection:
    """The protocol state of one client connection."""

    __slots__ = (
        "_calls",
        "_client_id_bytes",
        "_close",
        "_front",
        "_held",
        "_outbox",
        "_outbox_bytes",
        "_seat",
        "_send",
        "_since_ns",
        "_unblock",
        "_unmuting",
        "cancellations",
        "early_bytes",
        "grants",
        "is_closed",
        "is_flushing",
        "long_polls",
        "measured",
        "muted_until_ms",
        "produced",
        "round_heard",
        "session",
        "software",
        "unsent_bytes",
    )

    def __init__(
        self,
        front: FrontEnd,
        client: ConnectedClient,
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
        self._held = 0  # why it is not read
        self._seat = front.gate.seat()
        self._unmuting: Handle | None = None
        self._since_ns = 0  # when time was last charged
        self.muted_until_ms = 0
        self.measured = front.gate.requests.listener(client.rules.name)
        self.produced = self.measured.apis["Produce"]
        self.software = ""  # the client library, as it names itself
        self.identify(front.gate.authentication.session(client))
        self.is_closed = False
        self.is_flushing = False
        self.round_heard = -1  # the round in which the gatherer last took a small batch from here
        self.unsent_bytes = 0  # updated by the owner of the socket
        self.early_bytes = 0  # of responses that are ready and wait for earlier ones
        self.cancellations: dict[object, Callable[[], None]] = {}
        self.long_polls: dict[Waiting, Callable[[], None]] = {}  # with what ends their wait

    def identify(self, session: Session) -> None:
        """Use this identity from now on, and what it may write and read."""
        gate = self._front.gate
        self.session, self.grants = gate.shared(session), gate.grants(session)

    @property
    def is_blocked(self) -> bool:
        """Whether requests must wait until earlier responses are ready and sent."""
        front = self._front
        return (
            len(self._calls) >= front.requests_in_flight_max
            or self._held != 0
            or self.unsent_bytes + self._outbox_bytes + self.early_bytes > front.unsent_bytes_max
        )

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for us, rather than we for the client."""
        return (bool(self._calls) and not self.unsent_bytes) or self.is_muted

    def receive(self, data: memoryview) -> int:
        """Handle the complete requests at the start of `data`; return how many bytes they have."""
        at, end, front = 0, len(data), self._front
        gatherer, one_by_one = front.gatherer, 0
        meter = self.grants.meter
        is_counted = meter is not None and not meter.is_plain
        if is_counted:
            self._begin()
        while end - at >= 4 and not self.is_closed and not self.is_blocked:
            if one_by_one:
                one_by_one -= 1
            elif self._client_id_bytes and front.is_ready:
                run = read_run(
                    data, at, self._client_id_bytes, front.run_frame_bytes_max, RUN_REQUESTS_MAX
                )
                if run is not None and gatherer.take(self, data, at, run):
                    at = run[0]
                    if is_counted:
                        self._count(run[2])
                        self._settle()
                    continue
                # The run contains a request that needs individual handling; handle its requests one
                # by one.
                one_by_one = 0 if run is None else run[2] - 1
            (length,) = _LENGTH.unpack_from(data, at)
            if not 8 <= length <= front.request_bytes_max:
                protocol = protocol_of(bytes(data[at : at + FIRST_BYTES]))
                if protocol in ("TLS", "HTTP"):
                    raise MalformedRequest(explained(protocol, spoken="Kafka"))
                raise wrong_length(length, front.request_bytes_max)
            if length > SMALL_REQUEST_BYTES_MAX:
                _check_large(data[at:end], length)
            stop = at + 4 + length
            if stop > end:
                break
            if not front.is_ready and self._must_wait(data[at + 4 : stop]):
                break
            if front.is_turn_over and _HEAD.unpack_from(data, at + 4)[0] == _PRODUCE_KEY:
                self._held |= NOT_READY
                front.put_off(self)
                break
            if self.round_heard == gatherer.rounds:
                gatherer.store()  # Earlier requests of this client come first.
            if is_counted:
                self._count(1)
            self._handle(data[at + 4 : stop])
            at = stop
            if meter is not None:
                self._settle()
        return at

    # Quotas

    def _begin(self) -> None:
        """Begin to charge requests."""
        meter = self.grants.meter
        if meter is not None and meter.is_stale:
            self.identify(self.session)
            self._take_seat()
            meter = self.grants.meter
        if meter is not None and meter.measures_time:
            self._since_ns = perf_counter_ns()

    def _count(self, requests: int) -> None:
        """Charge requests."""
        meter = self.grants.meter
        if meter is not None and meter.counts_requests:
            meter.requested(requests)

    def _settle(self) -> None:
        """Mute the connection if it was charged too much."""
        meter = self.grants.meter
        if meter is not None and (meter.owed_ms or meter.measures_time):
            self.settle_quotas(meter)

    def settle_quotas(self, meter: Meter) -> int:
        """Charge the time since the last call, and return how long the client has to wait.

        Until then, the connection is not read. A client that waits as told does not notice it.
        """
        if meter.measures_time:
            now_ns = perf_counter_ns()
            meter.worked((now_ns - self._since_ns) // 1_000)
            self._since_ns = now_ns
        if meter.owed_ms:
            self.mute(meter.take_wait())
        return self.throttle_ms if self.muted_until_ms else 0

    def tell_throttle(self, response: Any) -> None:
        """Put into a response how long its client has to wait, if it has a field for that."""
        meter = self.grants.meter
        throttle_ms = 0 if meter is None else self.settle_quotas(meter)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms

    @property
    def throttle_ms(self) -> int:
        """How long the client has to wait from now on."""
        if not self.muted_until_ms:
            return 0
        return max(0, self.muted_until_ms - self._front.gate.clock.now_ms())

    def mute(self, wait_ms: int) -> None:
        """Read nothing for some time; what the client sends waits in its socket."""
        if self.is_closed:
            return
        clock = self._front.gate.clock
        self.muted_until_ms = max(self.muted_until_ms, clock.now_ms() + wait_ms)
        if not self._held & _MUTED:
            self._held |= _MUTED
            self._unmuting = clock.call_later(wait_ms, self._unmute)

    @property
    def is_muted(self) -> bool:
        return self._held & _MUTED != 0

    def _unmute(self) -> None:
        left_ms = self.throttle_ms
        if left_ms:
            self._unmuting = self._front.gate.clock.call_later(left_ms, self._unmute)
            return
        self._held &= ~_MUTED
        self.muted_until_ms = 0
        self._unmuting = None
        self._unblock()

    def _take_seat(self) -> None:
        """Count this connection among those of its user; raise if there are too many."""
        self._seat.take(self.session)

    def _must_wait(self, frame: memoryview) -> bool:
        """Hold a request until the node is ready, unless it is about versions or metadata."""
        if _HEAD.unpack_from(frame)[0] in _EARLY_KEYS:
            return False
        self._held |= NOT_READY
        self._front.hold(self)
        return True

    def release(self) -> None:
        self._held &= ~NOT_READY
        if not self.is_closed:
            self._unblock()

    def wanted_bytes(self, data: memoryview) -> int:
        """The size of the request at the start of `data`."""
        if len(data) < 4:
            return 4
        return 4 + int(_LENGTH.unpack_from(data, 0)[0])

    def stand_in_line(self, call: Waiting) -> None:
        self._calls.append(call)

    def advance(self) -> None:
        """Send the responses at the head of the queue, together with others of this iteration."""
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
        # Of the causes of blocking, only the length of the queue can have decreased here.
        if was_full and not self.is_blocked:
            self._unblock()
        if self.long_polls:
            self._end_long_polls()

    def long_poll(self, call: Waiting, end: Callable[[], None]) -> None:
        """Let a request wait for news until responses behind it are ready; `end` answers it then.

        Whoever answers it removes it from `long_polls`.
        """
        self.long_polls[call] = end
        self._end_long_polls()

    def _end_long_polls(self) -> None:
        """End the wait of requests that delay responses which are ready."""
        is_delaying = False
        for call in reversed(self._calls):
            if call.is_done:
                is_delaying = True
            elif is_delaying and call in self.long_polls:
                # A little later, so that a client with requests behind each poll gets news too.
                clock = self._front.gate.clock
                clock.call_later(LONG_POLL_GRACE_MS, self.long_polls.pop(call))

    def answer_at_once(self, answer: bytes) -> bool:
        """Send a response that has no entry in the queue; False, without effect, if others wait."""
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
        """The socket is closed; drop all responses."""
        self.is_closed = True
        cancellations, self.cancellations = self.cancellations, {}
        # Requests come before the session that they belong to, which was here first: when what it
        # holds is returned, they get nothing more.
        for cancel in reversed(tuple(cancellations.values())):
            cancel()
        self._calls.clear()
        self.long_polls.clear()
        self._outbox.clear()
        if self._held & NOT_READY:
            self._front.let_go(self)
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        self._seat.leave()
        # The socket's object refers to this one; dropping the reference breaks the cycle, so that
        # both are freed at once.
        self._send, self._close, self._unblock = _send_nothing, _do_nothing, _do_nothing

    def fail(self, what: str, error: Exception) -> None:
        _log.error("%s from %s failed", what, self.session.client_host, exc_info=error)
        if not self.is_closed:
            self._close()

    def refuse(self, reason: str) -> None:
        """Close the connection because of an error of its client."""
        _log.info("closing the connection of %s: %s", self.session.client_host, reason)
        if not self.is_closed:
            self._close()

    def _handle(self, frame: memoryview) -> None:
        started = perf_counter()
        key, version, correlation_id = _HEAD.unpack_from(frame)
        served = self._front.served.get(key)
        if served is None:
            raise not_served(key)
        if not served.version_min <= version <= served.version_max:
            if key != API_VERSIONS_KEY:
                raise MalformedRequest(f"{served.name} version {version} is not served here.")
            # The client may understand this response only in the oldest version.
            call = Call(self, served, 0, correlation_id, started)
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
                started=started,
            )
        ):
            return
        request = served.decode_request(frame, version, start_of_body)
        call = Call(self, served, version, correlation_id, started)
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
        """Read the rest of the header. Clients repeat their id, so the last one is cached."""
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
        self._take_seat()
        self._client_id_bytes = bytes(frame[8 : 10 + len(client_id.encode())])
        return body


def _send_nothing(_: list[Part]) -> None:
    """Used after the socket was closed."""


def _do_nothing() -> None:
    """Used after the socket was closed."""


def _check_large(start: memoryview, length: int) -> None:
    """Raise as soon as a large request is known to be none that may be large."""
    if len(start) >= 6 and _KEY.unpack_from(start, 4)[0] != _PRODUCE_KEY:
        raise RequestTooLarge(
            f"A request of {length} bytes is over the limit of {SMALL_REQUEST_BYTES_MAX}, which "
            "all requests but Produce have."
        )


def wrong_length(length: int, most: int) -> MalformedRequest:
    if length > most:
        return RequestTooLarge(f"A request of {length} bytes is over the limit of {most}.")
    return MalformedRequest(f"A request cannot have {length} bytes.")
