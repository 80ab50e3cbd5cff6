"""One call of the HTTP API as a value: what to send, and how to read the answer.

Nothing here opens a connection, so the synchronous and the asynchronous client share every request
and differ only in who carries it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from goqueue.client.errors import BrokerRefused

T = TypeVar("T")


class Repeat(enum.Enum):
    """What it does to send a request again whose answer was lost."""

    HARMLESS = "harmless"  # the second time changes nothing more
    PUBLISHES = "publishes"  # the messages may be stored twice; the caller decides
    CONFUSES = "confuses"  # the second answer would be about the first request


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """What is sent. `read` turns the bytes of a good answer into what the caller gets."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeat: Repeat = Repeat.HARMLESS
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_ms: int = 0  # what the broker was asked to wait, on top of the usual time for an answer


def path_of(*names: object) -> str:
    """A path under /v1; a slash inside a name is not one between names."""
    return "/v1/" + "/".join(quote(str(name), safe="") for name in names)


def query_of(struct: msgspec.Struct) -> dict[str, str]:
    """The fields of a query that say something, as text."""
    fields = msgspec.to_builtins(struct)
    return {name: _as_text(value) for name, value in fields.items() if value not in (None, "")}


def body_of(struct: msgspec.Struct) -> bytes:
    return msgspec.json.encode(struct)


def body_with(**fields: object) -> bytes:
    """A body of the fields that were given; None means that the broker's default applies."""
    return msgspec.json.encode({name: one for name, one in fields.items() if one is not None})


def reading(kind: type[T]) -> Callable[[bytes], T]:
    """A function that reads answers of one kind. Fields it does not know are passed over."""
    decode = msgspec.json.Decoder(kind).decode

    def read(data: bytes) -> T:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BrokerRefused(
                f"The answer is not what was asked for ({error}); is this the address of a GoQueue "
                "broker of this version?"
            ) from error

    return read


def nothing(_: bytes) -> None:
    """For answers that say no more than that it is done."""


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
