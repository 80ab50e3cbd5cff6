"""How serializers of a registry begin every value: a zero byte and four bytes of a schema's id."""

from __future__ import annotations

HEAD_BYTES = 5


def names_schema(head: bytes) -> bool:
    """Whether these first bytes of a value say which schema it was written with."""
    return len(head) == HEAD_BYTES and head[0] == 0


def schema_id_of(head: bytes) -> int:
    return int.from_bytes(head[1:HEAD_BYTES], "big")
