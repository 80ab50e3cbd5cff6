"""What many sockets have brought, and what is for many of them, handled in one turn.

`_turns.c` does it compiled, without the lock of the interpreter; this says the same in plain
Python. Sockets must not block.
"""

from __future__ import annotations

import os
import select
from typing import TypeVar

READY_MAX = 256  # sockets that are looked at in one call; the others are still ready in the next
APART = -1  # where bytes start that were left to the connection

_Connection = TypeVar("_Connection")


def receive_ready(
    epoll: select.epoll,
    connections: dict[int, _Connection],
    apart: set[int],
    buffer: memoryview,
    room_min: int,
    /,
) -> list[tuple[_Connection, int, int]]:
    """Receive from all sockets that are ready, while there is room for so much.

    Each row has a connection, where in the buffer its bytes start and how many they are: 0 at the
    end of the stream, or the negative number of an error. Nothing was received from those whose
    descriptors are in `apart`; they come last. Descriptors without a connection are passed over.
    """
    rows, rows_apart = [], []
    at = 0
    for descriptor, _ in epoll.poll(0, READY_MAX):
        if descriptor not in connections:
            continue
        if descriptor in apart:
            rows_apart.append((connections[descriptor], APART, 0))
            continue
        if len(buffer) - at < room_min:
            continue
        try:
            received = os.readv(descriptor, [buffer[at:]])
        except OSError as error:
            received = -(error.errno or 0)
        rows.append((connections[descriptor], at, received))
        at += max(received, 0)
    return rows + rows_apart


def send_all(descriptors: list[int], pieces: list[bytes], /) -> list[tuple[int, int]]:
    """Send a piece to each; which of them did not go out whole, and how much of them did.

    That is how many bytes, or the negative number of an error.
    """
    short = []
    for number, (descriptor, piece) in enumerate(zip(descriptors, pieces, strict=True)):
        try:
            sent = os.write(descriptor, piece)
        except OSError as error:
            sent = -(error.errno or 0)
        if sent != len(piece):
            short.append((number, sent))
    return short
