"""The table of all calls: their services, messages and handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import Message

from goqueue.loop.promise import Promise

if TYPE_CHECKING:
    from goqueue.wire.grpc.calls import Call
    from goqueue.wire.grpc.front_end import FrontEnd

# Coroutines of promises, as all handlers of the broker's API; only streams wait on asyncio.
UnaryHandler = Callable[["FrontEnd", "Call", Any], Coroutine[Promise[Any], None, Message]]


class Wire(Protocol):
    """Both directions of a stream, as bytes of messages."""

    async def read(self) -> bytes | None:
        """Return the next message of the client; None after its last."""

    async def write(self, data: bytes) -> None:
        """Send a message; returns when the client can take it."""


StreamHandler = Callable[["FrontEnd", "Call", Wire], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Unary:
    """A call with one request and one response."""

    service: str  # with its package
    name: str  # unique among all services: it names the call in metrics
    request: type[Message]
    handler: UnaryHandler
    refused_field: str = ""  # what the core refuses in general terms is in this field
    is_waiting: bool = False  # it may wait for messages
    is_open: bool = False  # health, which needs no credentials, unless the settings say so
    are_metrics: bool = False
    is_public: bool = False
    has_public_page: bool = False

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


@dataclass(frozen=True, slots=True)
class Streaming:
    """A call whose messages are a stream, in one direction or in both."""

    service: str
    name: str
    handler: StreamHandler
    refused_field: str = ""
    has_requests: bool = False  # which are counted one by one; other streams, when they begin
    is_waiting: bool = True
    is_open: bool = False
    are_metrics: bool = False
    is_public: bool = False
    has_public_page: bool = False

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"
