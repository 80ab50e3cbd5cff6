"""The framing of registry serializers: a zero byte and the four bytes of a schema id."""

from __future__ import annotations

HEAD_BYTES = 5


def names_schema(head: bytes) -> bool:
    """Return whether these first bytes of a value contain a schema id."""
    return len(head) == HEAD_BYTES and head[0] == 0


def schema_id_of(head: bytes) -> int:
    return int.from_bytes(head[1:HEAD_BYTES], "big")
