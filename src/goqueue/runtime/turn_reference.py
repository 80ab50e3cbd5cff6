"""Receives from many sockets, and sends to many sockets, in one call.

`_turns.c` is the compiled version, which releases the interpreter lock; this is the reference in
plain Python. Sockets must be non-blocking.
"""

from __future__ import annotations

import os
import select
from typing import TypeVar

READY_MAX = 256  # sockets handled in one call; the others remain ready for the next
APART = -1  # start of the bytes of a connection that receives by itself

_Connection = TypeVar("_Connection")


def receive_ready(
    epoll: select.epoll,
    connections: dict[int, _Connection],
    apart: set[int],
    buffer: memoryview,
    room_min: int,
    /,
) -> list[tuple[_Connection, int, int]]:
    """Receive from all ready sockets while the buffer has enough free space.

    Each row has a connection, the start of its bytes in the buffer, and their number: 0 at the end
    of the stream, or a negative error number. Sockets whose descriptors are in `apart` are not
    received from, and come last. Descriptors without a connection are skipped.
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
    """Send one piece to each socket; return those that were not sent completely.

    Each comes with the number of bytes sent, or a negative error number.
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
