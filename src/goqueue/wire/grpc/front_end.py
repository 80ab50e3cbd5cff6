"""The state that all calls of the gRPC front end share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.model.session import ConnectedClient, Session
from goqueue.wire.carrier.credentials import HeaderAuthenticator
from goqueue.wire.carrier.problems import NodeStarting, NodeStopping
from goqueue.wire.grpc.budgets import Intake, Unread
from goqueue.wire.grpc.watches import Watches

if TYPE_CHECKING:
    from goqueue.broker.gate import Gate
    from goqueue.model.errors import GoQueueError
    from goqueue.wire.grpc.calls import Call

LISTENER = "grpc"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one message, one connection, and all of them together."""

    message_bytes_max: int = 4 << 20
    streams_max: int = 100  # calls at a time of one connection
    handling_bytes_max: int = 128 << 20  # of all requests that are being handled
    unread_bytes_max: int = 128 << 20  # of all responses that clients have not read
    keepalive_ms: int = 120_000  # silence after which a client is asked whether it is still there
    page_bytes_max: int = 1 << 20  # of messages in one response, approximately


class FrontEnd:
    """The gate of the broker, and who is connected."""

    def __init__(self, gate: Gate, limits: Limits, *, is_health_open: bool = True) -> None:
        self.gate = gate
        self.limits = limits
        self.is_health_open = is_health_open  # without credentials
        self.watches = Watches()
        self.is_stopping = False
        self._is_ready = True
        self.services: tuple[str, ...] = ()  # set by the server
        self.connections: dict[str, Connection] = {}  # by the name of the peer
        self.calls: set[Call] = set()
        self.open_streams = 0  # of calls that stream, in either direction
        self.intake = Intake(limits.handling_bytes_max)
        self.unread = Unread(limits.unread_bytes_max)
        self._session = Session(LISTENER)  # for the front end's own requests

    @property
    def is_ready(self) -> bool:
        """False until the node is an accepted member of its cluster."""
        return self._is_ready

    @is_ready.setter
    def is_ready(self, is_ready: bool) -> None:
        self._is_ready = is_ready
        self.watches.changed()

    def refuse_calls(self) -> None:
        """Take no more calls, because the node stops."""
        self.is_stopping = True
        self.watches.changed()

    def now_ms(self) -> int:
        return self.gate.clock.wall_ms()

    def check_ready(self) -> None:
        """Raise unless calls can be served."""
        if self.is_stopping:
            raise NodeStopping
        if not self.is_ready:
            raise NodeStarting(self.gate.node.waits_for(self._session))

    def begin(self, call: Call) -> None:
        """Enter a call that may last, so that a stop of the node ends it."""
        if self.is_stopping:
            raise NodeStopping
        self.calls.add(call)

    def end_calls(self, error: GoQueueError) -> None:
        """End all calls that still run."""
        for one in list(self.calls):
            one.end(error)


class Connection:
    """One connection: who its client is, as far as the connection itself says that."""

    def __init__(self, front: FrontEnd, client: ConnectedClient) -> None:
        """Raises if the client may not connect with its certificate."""
        gate = front.gate
        self.host = client.host
        self.measured = gate.requests.listener(client.rules.name)
        self.seat = gate.seat()
        self.call_count = 0
        self.authenticator = HeaderAuthenticator(
            gate.authentication,
            client,
            gate.authentication.session(client),
            is_open=front.is_health_open,
        )

    def close(self) -> None:
        self.seat.leave()
