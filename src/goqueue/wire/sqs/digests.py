"""The digests that clients verify: of a body, and of attributes in the encoding of SQS.

Attributes are sorted by name, and each is encoded as name, data type, one byte for the transport
type, and value; variable-length fields are preceded by their length.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5, sha256

from goqueue.wire.sqs.shapes import AttributeValue

_STRING, _BINARY = b"\x01", b"\x02"


def of_body(body: bytes) -> str:
    return md5(body, usedforsecurity=False).hexdigest()


def of_contents(body: bytes) -> str:
    """The deduplication id of a message with content-based deduplication."""
    return sha256(body).hexdigest()


def of_attributes(attributes: Mapping[str, AttributeValue] | None) -> str | None:
    if not attributes:
        return None
    parts: list[bytes] = []
    for name in sorted(attributes):
        one = attributes[name]
        data_type = one.data_type or ""
        parts += [_sized(name.encode()), _sized(data_type.encode())]
        if one.binary_value is not None:
            parts += [_BINARY, _sized(one.binary_value)]
        else:
            parts += [_STRING, _sized((one.string_value or "").encode())]
    return md5(b"".join(parts), usedforsecurity=False).hexdigest()


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
