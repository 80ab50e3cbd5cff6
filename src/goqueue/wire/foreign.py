"""Recognises clients that use another protocol than that of the listener."""

from __future__ import annotations

from struct import Struct

_METHODS = (
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"DELE",
    b"OPTI",
    b"PATC",
    b"CONN",
    b"TRAC",
    b"PRI ",
)
_TLS_HANDSHAKE = b"\x16\x03"
_KAFKA_HEAD = Struct(">ihh")
_KAFKA_LENGTH_MAX = 1 << 20  # of the first request
_KAFKA_KEY_MAX, _KAFKA_VERSION_MAX = 100, 30
FIRST_BYTES = _KAFKA_HEAD.size


def protocol_of(data: bytes) -> str:
    """The name of the protocol that these bytes belong to; empty if unknown."""
    if data.startswith(_TLS_HANDSHAKE):
        return "TLS"
    if data[:4] in _METHODS:
        return "HTTP"
    if len(data) >= _KAFKA_HEAD.size:
        length, key, version = _KAFKA_HEAD.unpack_from(data)
        is_length = 8 <= length <= _KAFKA_LENGTH_MAX
        if is_length and 0 <= key <= _KAFKA_KEY_MAX and 0 <= version <= _KAFKA_VERSION_MAX:
            return "Kafka"
    return ""


def explained(protocol: str, *, spoken: str) -> str:
    """A log message about a client that uses another protocol, with the remedy."""
    remedy = {
        "TLS": f"this port does not use TLS; connect without it ({spoken} in plain text)",
        "HTTP": "the HTTP API is at the address of listeners.http",
        "Kafka": "Kafka clients connect to the address of listeners.kafka",
    }[protocol]
    return f"a client uses {protocol} on a port for {spoken}; {remedy}"
