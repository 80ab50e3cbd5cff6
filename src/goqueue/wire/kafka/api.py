"""Describes a Kafka API: its key, name, supported versions, and the codec of its messages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol, cast

from goqueue.model.errors import MalformedRequest
from goqueue.wire.kafka.primitives import Buffer

API_VERSIONS_KEY: Final = 18
_MESSAGES: Final = "goqueue.wire.kafka.messages"
# Requests that a client sends only if it ignores that they are not announced.
_STREAMS_KEYS: Final = frozenset({88, 89})


class Codec(Protocol):
    """A module of `messages`: the structs of one API, and functions to encode and decode them."""

    Request: type[Any]
    Response: type[Any]

    def decode_request(self, data: Buffer, version: int, start: int = 0) -> Any: ...
    def encode_request(self, message: Any, version: int) -> bytes: ...
    def write_request(self, message: Any, version: int, chunks: list[Buffer]) -> None: ...
    def decode_response(self, data: Buffer, version: int, start: int = 0) -> Any: ...
    def encode_response(self, message: Any, version: int) -> bytes: ...
    def write_response(self, message: Any, version: int, chunks: list[Buffer]) -> None: ...


@dataclass(frozen=True, slots=True)
class Api:
    """One API. Its codec is imported on first use."""

    key: int
    name: str
    version_min: int
    version_max: int
    flexible_from: int | None  # None: no version has compact types and tagged fields
    module: str  # in `messages`
    is_latest_unstable: bool = False  # Kafka may still change `version_max`; it is not advertised

    @property
    def codec(self) -> Codec:
        return cast(Codec, import_module(f"{_MESSAGES}.{self.module}"))

    @property
    def version_stable_max(self) -> int:
        return self.version_max - 1 if self.is_latest_unstable else self.version_max

    def supports(self, version: int) -> bool:
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        # A client sends ApiVersions before it knows which versions the broker supports, so it must
        # be able to read the response whatever version the broker chooses.
        if self.key == API_VERSIONS_KEY:
            return 0
        return 1 if self.is_flexible(version) else 0


def not_served(key: int) -> MalformedRequest:
    """The error of a request that no handler takes."""
    if key in _STREAMS_KEYS:
        return MalformedRequest(
            f"API {key} is not served here: Kafka Streams works with group.protocol=classic alone."
        )
    return MalformedRequest(f"API {key} is not served here.")
