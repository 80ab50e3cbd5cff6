"""The Kafka front end: the APIs it serves, their handlers, and what all connections share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from goqueue.broker.gate import Gate
from goqueue.model.compression import meter
from goqueue.model.session import NOBODY, ConnectedClient, Session
from goqueue.wire.kafka.api import API_VERSIONS_KEY, Api
from goqueue.wire.kafka.connection import Call, Connection
from goqueue.wire.kafka.errors import ErrorCode
from goqueue.wire.kafka.fetch_sessions import FetchSessions
from goqueue.wire.kafka.handlers import HANDLERS, TELEMETRY_KEYS, load_handler
from goqueue.wire.kafka.messages import API_BY_KEY
from goqueue.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from goqueue.wire.kafka.produce_fast_path import FRAME_BYTES_MAX, Gatherer
from goqueue.wire.kafka.response_errors import errors_in
from goqueue.wire.kafka.sasl_connection import SaslConnection
from goqueue.wire.kafka.share_sessions import ShareSessions
from goqueue.wire.parts import Part

_LOADED = frozenset(("decode_request", "errors_in", "handler", "response_type", "write_response"))


class Served:
    """A served API, with everything needed to handle one request of it.

    Its codec and its handler are loaded by the first request.
    """

    __slots__ = (
        "_api",
        "_flexible_from",
        "_front",
        "decode_request",
        "errors_in",
        "handler",
        "key",
        "name",
        "response_type",
        "version_max",
        "version_min",
        "write_response",
    )

    decode_request: Callable[..., Any]
    errors_in: Callable[[Any], set[int]]
    handler: Callable[[Call, Any], Any]
    response_type: type[Any]
    write_response: Callable[..., None]

    def __init__(self, front: FrontEnd, api: Api) -> None:
        self._front = front
        self._api = api
        self.key = api.key
        self.name = api.name
        self.version_min = api.version_min
        self.version_max = api.version_stable_max
        self._flexible_from = 1 << 15 if api.flexible_from is None else api.flexible_from

    def __getattr__(self, name: str) -> Any:
        """Load the API, because one of the attributes that come with it is not set yet."""
        if name not in _LOADED:
            raise AttributeError(name)
        codec = self._api.codec
        self.decode_request = codec.decode_request
        self.write_response = codec.write_response
        self.response_type = codec.Response
        self.errors_in = errors_in(codec.Response)
        self.handler = partial(load_handler(self.key), self._front)
        return getattr(self, name)

    def is_flexible(self, version: int) -> bool:
        return version >= self._flexible_from

    def has_flexible_header(self, version: int) -> bool:
        return version >= self._flexible_from and self.key != API_VERSIONS_KEY


_WATCH = "watch"  # among the cancellations of a connection
# The requests of clients that log in, in one iteration of the event loop; when many of them log in
# at once, clients that are already logged in are served in between.
TURN_LOGINS_MAX = 16

# The bytes decompressed in one iteration of the event loop; further producers wait for the next, so
# that others are served too.
TURN_UNPACKED_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one connection."""

    request_bytes_max: int = 100 << 20
    requests_in_flight_max: int = 64
    unsent_bytes_max: int = 64 << 20
    fetch_bytes_max: int = 55 << 20
    fetch_sessions_max: int = 1000
    share_sessions_max: int = 2000
    session_ms_max: int = 0  # after which a client must authenticate again; 0: never


class Sending(Protocol):
    """The owner of the sockets, which can send for many of them in one call."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class FrontEnd:
    """What all Kafka connections of a node share."""

    def __init__(
        self, gate: Gate, limits: Limits, *, advertised: Callable[[str], tuple[str, int]]
    ) -> None:
        """The gate must not forward calls: clients of this protocol find the owners themselves.

        `advertised` has the address of this node by listener.
        """
        self.gate = gate
        self._session = NOBODY  # for requests of the front end itself
        self.node_id = self.gate.node.identity(self._session).node_id
        self.advertised = advertised
        self.limits = limits
        self.request_bytes_max = limits.request_bytes_max
        self.run_frame_bytes_max = min(limits.request_bytes_max, FRAME_BYTES_MAX)
        self.requests_in_flight_max = limits.requests_in_flight_max
        self.unsent_bytes_max = limits.unsent_bytes_max
        self.fetch_sessions = FetchSessions(limits.fetch_sessions_max, gate.random)
        self.share_sessions = ShareSessions(limits.share_sessions_max)
        self.served: Mapping[int, Served] = {
            key: Served(self, API_BY_KEY[key])
            for key in HANDLERS
            if gate.has_client_telemetry or key not in TELEMETRY_KEYS
        }
        self._logins = 0  # requests of clients that log in, in this iteration
        self._logging_in: deque[SaslConnection] = deque()  # that wait for another iteration
        self.refusals = 0  # connections that wait before they learn that authentication failed
        self.is_ready = True  # False until the node has joined its cluster
        self._held: set[Connection] = set()
        self._put_off: list[Connection] = []
        self._unpacked_before = meter.bytes_total  # in this iteration
        self.gatherer = Gatherer(self)
        self._to_flush: list[Connection] = []
        self.sending: Sending | None = None  # None: each connection sends for itself

    def connect(
        self,
        client: ConnectedClient,
        *,
        send: Callable[[list[Part]], None],
        close: Callable[[], None],
        unblock: Callable[[], None],
    ) -> Connection:
        rules = client.rules
        needs_sasl = rules.must_authenticate and not rules.uses_certificates
        kind = SaslConnection if rules.sasl_mechanisms or needs_sasl else Connection
        connection = kind(self, client, send=send, close=close, unblock=unblock)
        if connection.session.is_authenticated:
            self.watch(connection)  # The client has a certificate.
        return connection

    def watch(self, connection: Connection) -> None:
        """Close a connection when its user or its key is deleted or disabled."""
        known = connection.cancellations.pop(_WATCH, None)
        if known is not None:
            known()

        def ended() -> None:
            connection.cancellations.pop(_WATCH, None)
            connection.refuse("its user or its key was deleted or disabled")

        watch = self.gate.authentication.watch(connection.session, ended)
        connection.cancellations[_WATCH] = watch.cancel

    def brokers(self, session: Session) -> dict[int, tuple[str, int]]:
        """The nodes that clients can be sent to, at the listener that the client came by.

        Nodes without a listener of that name are left out.
        """
        endpoints = self.gate.cluster.endpoints(session, listener=session.listener)
        if endpoints is None:
            return {self.node_id: self.advertised(session.listener)}
        return {node: _split(one.address) for node, one in endpoints.items()}

    def racks(self, session: Session) -> dict[int, str]:
        """The racks of these nodes; empty for those without one."""
        endpoints = self.gate.cluster.endpoints(session, listener=session.listener)
        if endpoints is None:
            return {self.node_id: self.gate.node.rack(session)}
        return {node: one.rack for node, one in endpoints.items()}

    def controller_id(self, session: Session) -> int:
        """The controller, if clients can reach it; otherwise this node, which forwards to it."""
        controller = self.gate.cluster.controller(session)
        return controller if controller in self.brokers(session) else self.node_id

    def hold(self, connection: Connection) -> None:
        """Hold a connection with a request other than metadata until the node is ready."""
        self._held.add(connection)

    def let_go(self, connection: Connection) -> None:
        """The connection was closed before that."""
        self._held.discard(connection)

    def become_ready(self) -> None:
        self.is_ready = True
        held, self._held = self._held, set()
        for connection in held:
            connection.release()

    @property
    def is_turn_over(self) -> bool:
        """Whether this iteration has decompressed so much that other connections come first."""
        return meter.bytes_total - self._unpacked_before > TURN_UNPACKED_BYTES_MAX

    def put_off(self, connection: Connection) -> None:
        """Let the connection continue with its requests in the next iteration."""
        if not self._put_off:
            self.gate.clock.call_soon(self._next_turn)
        self._put_off.append(connection)

    def _next_turn(self) -> None:
        self._unpacked_before = meter.bytes_total
        connections, self._put_off = self._put_off, []
        for connection in connections:
            connection.release()

    def takes_login(self, connection: SaslConnection) -> bool:
        """Whether this iteration may handle a request of a client that logs in.

        If not, the connection must hold its requests; it gets a turn in one of the next.
        """
        if self._logins >= TURN_LOGINS_MAX or self._logging_in:
            self._logging_in.append(connection)
            return False
        if not self._logins:
            self.gate.clock.call_soon(self._next_logins)
        self._logins += 1
        return True

    def _next_logins(self) -> None:
        """Give turns to those that wait longest, which use them in the next iteration."""
        waiting = self._logging_in
        self._logins = min(TURN_LOGINS_MAX, len(waiting))
        for _ in range(self._logins):
            waiting.popleft().take_turn()
        if self._logins:
            self.gate.clock.call_soon(self._next_logins)

    def flush_later(self, connection: Connection) -> None:
        """Flush a connection at the end of this iteration, when more responses may be ready."""
        if not self._to_flush:
            self.gate.clock.call_soon(self.flush_all)
        self._to_flush.append(connection)

    def api_versions(self) -> list[ApiVersion]:
        return [
            ApiVersion(api_key=one.key, min_version=one.version_min, max_version=one.version_max)
            for one in self.served.values()
        ]

    def unsupported_api_versions(self) -> ApiVersionsResponse:
        """The response to an ApiVersions request of an unsupported version."""
        known = [one for one in self.api_versions() if one.api_key == API_VERSIONS_KEY]
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)

    def flush_all(self) -> None:
        """Flush the connections that have responses to send."""
        self._unpacked_before = meter.bytes_total
        connections, self._to_flush = self._to_flush, []
        sending = self.sending
        if sending is None or len(connections) <= 1:
            for connection in connections:
                connection.flush()
            return
        sending.hold()
        try:
            for connection in connections:
                connection.flush()
        finally:
            sending.release()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
