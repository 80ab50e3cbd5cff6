"""The JSON protocol (AWS JSON 1.0): the action in a header, input and output as JSON."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from goqueue.wire.carrier.calls import encode
from goqueue.wire.sqs.errors import MalformedInput, SqsError
from goqueue.wire.sqs.shapes import Shape

MEDIA_TYPE = b"application/x-amz-json-1.0"

encode_answer = encode


def decode(body: bytes, shape: type[Shape]) -> Any:
    """Decode the input of an action; an empty body is an empty input."""
    try:
        return _decoder(shape).decode(body or b"{}")
    except msgspec.DecodeError as error:
        raise MalformedInput(f"The body does not fit the action: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"The body cannot be read: {error}.") from None


def encode_error(error: SqsError) -> bytes:
    return encode_answer({"__type": error.space + error.name, "message": str(error)})


@cache
def _decoder(shape: type[Shape]) -> msgspec.json.Decoder[Shape]:
    return msgspec.json.Decoder(shape)
