"""The parts of a response to be written to a socket."""

from __future__ import annotations

from typing import TypeAlias

from goqueue.broker.gate.views import SendableFile
from goqueue.model.compression import Buffer


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
