"""One call of the HTTP API as a value: what to send, and how to decode the response.

Nothing here opens a connection, so the synchronous and the asynchronous client share every request
and differ only in what sends them. A call of the gRPC API is such a value too: the path of a method
and the bytes of a message.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from goqueue.client.errors import BrokerRefused

T = TypeVar("T")


class Repeat(enum.Enum):
    """The effect of repeating a request whose response was lost."""

    IDEMPOTENT = "idempotent"
    PUBLISHES = "publishes"  # the messages may be stored twice; the caller decides
    AMBIGUOUS = "ambiguous"  # the second response would describe the effect of the first request


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request. `read` decodes the body of a successful response."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeat: Repeat = Repeat.IDEMPOTENT
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_ms: int = 0  # a long poll's wait, in addition to the response timeout


class Sender(Protocol):
    """Sends requests for threads; whatever protocol they are of."""

    def send(self, request: Request[T]) -> T: ...

    def close(self) -> None: ...


class AsyncSender(Protocol):
    """Sends requests for coroutines."""

    async def send(self, request: Request[T]) -> T: ...

    async def close(self) -> None: ...


def path_of(*names: object) -> str:
    """A path under /v1; slashes inside a name are escaped."""
    return "/v1/" + "/".join(quote(str(name), safe="") for name in names)


def query_of(struct: msgspec.Struct) -> dict[str, str]:
    """The fields of a query that are set, as text."""
    fields = msgspec.to_builtins(struct)
    return {name: _as_text(value) for name, value in fields.items() if value not in (None, "")}


def body_of(struct: msgspec.Struct) -> bytes:
    return msgspec.json.encode(struct)


def body_with(**fields: object) -> bytes:
    """A body with the given fields; None leaves a field to the broker's default."""
    return msgspec.json.encode({name: one for name, one in fields.items() if one is not None})


def reading(kind: type[T]) -> Callable[[bytes], T]:
    """A function that decodes responses of one type. Unknown fields are ignored."""
    decode = msgspec.json.Decoder(kind).decode

    def read(data: bytes) -> T:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BrokerRefused(
                f"The response has an unexpected format ({error}); is this the address of a "
                "GoQueue broker of this version?"
            ) from error

    return read


def nothing(_: bytes) -> None:
    """Decodes responses without content."""


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
