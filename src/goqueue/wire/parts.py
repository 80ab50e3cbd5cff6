"""The parts of a response to be written to a socket."""

from __future__ import annotations

from typing import TypeAlias

from goqueue.broker.gate.views import SendableFile
from goqueue.model.compression import Buffer

# Parts are joined if they are not longer than this, up to so many bytes at once.
JOINED_PART_BYTES_MAX = 64 << 10
JOINED_BYTES_MAX = 256 << 10


class FileRange:
    """Bytes of a file that are sent to the socket by zero-copy."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: SendableFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length


Part: TypeAlias = Buffer | FileRange


def joined(parts: list[Part]) -> list[Part]:
    """Return the same bytes in as few parts as is worth it: each costs time until it is sent.

    Responses are encoded as many small pieces. Copying a large one would cost more than it saves.
    """
    if len(parts) == 1:
        return parts
    if sum(map(len, parts)) <= JOINED_BYTES_MAX and FileRange not in map(type, parts):
        return [b"".join(parts)]  # type: ignore[arg-type]
    found: list[Part] = []
    small: list[Buffer] = []
    size = 0
    for part in parts:
        length = len(part)
        if isinstance(part, FileRange) or length > JOINED_PART_BYTES_MAX:
            found += _one(small)
            found.append(part)
            small, size = [], 0
            continue
        if size + length > JOINED_BYTES_MAX:
            found += _one(small)
            small, size = [], 0
        small.append(part)
        size += length
    return found + _one(small)


def _one(small: list[Buffer]) -> list[Part]:
    return [b"".join(small)] if small else []
