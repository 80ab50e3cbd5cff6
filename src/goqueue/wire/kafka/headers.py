"""The headers of requests and responses: API, version, correlation id.

The version of a header depends on the API and its version, so a reader needs the first four bytes
before it can decode the rest.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from goqueue.model.errors import MalformedRequest
from goqueue.wire.kafka.api import Api
from goqueue.wire.kafka.messages import API_BY_KEY
from goqueue.wire.kafka.messages import header as codec
from goqueue.wire.kafka.messages.header import RequestHeader, ResponseHeader
from goqueue.wire.kafka.primitives import Buffer

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
]

_KEY_AND_VERSION: Final = Struct(">hh")


def decode_request_header(data: Buffer, start: int = 0) -> tuple[RequestHeader, int]:
    """Return the header of a request and the position of its body.

    The version may be unsupported: the caller checks `Api.supports`, because a client that sends a
    newer ApiVersions gets a response that says so.
    """
    if len(data) - start < _KEY_AND_VERSION.size:
        raise MalformedRequest("A request is too short to name its API.")
    key, version = _KEY_AND_VERSION.unpack_from(data, start)
    api = API_BY_KEY.get(key)
    if api is None:
        raise MalformedRequest(f"No API has the key {key}.")
    return codec.decode_request_header(data, api.request_header_version(version), start)


def encode_request_header(
    api: Api, *, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    header = RequestHeader(api.key, version, correlation_id, client_id)
    return codec.encode_request_header(header, api.request_header_version(version))


def decode_response_header(
    data: Buffer, api: Api, version: int, start: int = 0
) -> tuple[ResponseHeader, int]:
    """Return the header of a response and the position of its body."""
    return codec.decode_response_header(data, api.response_header_version(version), start)


def encode_response_header(api: Api, *, version: int, correlation_id: int) -> bytes:
    return codec.encode_response_header(
        ResponseHeader(correlation_id), api.response_header_version(version)
    )
