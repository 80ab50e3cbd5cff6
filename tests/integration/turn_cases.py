"""Sockets in all states that a turn can find them in, from a seed."""

from __future__ import annotations

import random
import select
import socket
import struct
from typing import Any

PAIRS_MAX = 6
ROOM_BYTES = 4_000
ROOM_BYTES_MIN = 500
PIECE_BYTES_MAX = 300_000


def outcomes(module: Any, seed: int) -> tuple[list[tuple[int, int, bytes]], list[tuple[int, int]]]:
    """What is received, by pair, and which pieces do not go out whole."""
    chance = random.Random(seed)
    pairs = [a_pair() for _ in range(chance.randrange(PAIRS_MAX + 1))]
    with select.epoll() as epoll:
        try:
            for ours, theirs in pairs:
                epoll.register(ours, select.EPOLLIN)
                _prepare(chance, theirs)
            connections = {ours.fileno(): number for number, (ours, _) in enumerate(pairs)}
            apart = {fd for fd in connections if chance.random() < 0.2}
            for descriptor in list(connections):
                if chance.random() < 0.1:
                    del connections[descriptor]
            buffer = memoryview(bytearray(ROOM_BYTES))
            rows = module.receive_ready(epoll, connections, apart, buffer, ROOM_BYTES_MIN)
            received = [
                (number, length, bytes(buffer[start : start + length]) if length > 0 else b"")
                for number, start, length in rows
            ]
            pieces = [chance.randbytes(chance.randrange(PIECE_BYTES_MAX)) for _ in pairs]
            sent = module.send_all([ours.fileno() for ours, _ in pairs], pieces)
            return received, sent
        finally:
            for pair in pairs:
                for one in pair:
                    one.close()


def a_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection, of which the first does not block."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def reset(one: socket.socket) -> None:
    """Close so that the other end gets an error, where the kind of socket knows that."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def _prepare(chance: random.Random, theirs: socket.socket) -> None:
    if chance.random() < 0.8:
        theirs.send(chance.randbytes(chance.randrange(1, ROOM_BYTES // 2)))
    if chance.random() < 0.2:
        theirs.close()
