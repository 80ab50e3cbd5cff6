"""What this machine can do with no broker at all: page cache, disk, loopback, checksum.

Plain system calls on large pieces: the interpreter's share is below a hundredth.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import crc32c

MIB = 1 << 20
PIECE_BYTES = 256 * 1024
SYNC_BYTES = 4096


def page_cache_write(folder: Path, total_bytes: int) -> float:
    """GB/s of writing a file in pieces, with no sync."""
    path = folder / "limit-write"
    piece = os.urandom(PIECE_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        begin = time.monotonic()
        for _ in range(total_bytes // PIECE_BYTES):
            os.write(descriptor, piece)
        return total_bytes / (time.monotonic() - begin) / 1e9
    finally:
        os.close(descriptor)
        path.unlink()


def fdatasync_ms(folder: Path, count: int) -> tuple[float, float]:
    """The median and 99th percentile of one small append made durable."""
    path = folder / "limit-sync"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    samples = []
    try:
        for _ in range(count):
            os.write(descriptor, b"x" * SYNC_BYTES)
            begin = time.monotonic()
            os.fdatasync(descriptor)
            samples.append((time.monotonic() - begin) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    samples.sort()
    return statistics.median(samples), samples[int(len(samples) * 0.99)]


def synced_at_pace_ms(folder: Path, rate: int, seconds: float) -> tuple[float, float]:
    """The median and 99th percentile from when an append was due to when it was durable.

    One sync serves all that are due by then, so this is what group commit on this disk costs
    everybody, stalls of the disk included.
    """
    path = folder / "limit-pace"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    samples: list[float] = []
    begin = time.monotonic()
    try:
        while len(samples) < rate * seconds:
            elapsed = time.monotonic() - begin
            due = int(elapsed * rate) - len(samples)
            if due <= 0:
                time.sleep((len(samples) + 1) / rate - elapsed)
                continue
            os.write(descriptor, b"x" * SYNC_BYTES * due)
            os.fdatasync(descriptor)
            done = time.monotonic() - begin
            samples += [(done - n / rate) * 1000 for n in range(len(samples), len(samples) + due)]
    finally:
        os.close(descriptor)
        path.unlink()
    samples.sort()
    return statistics.median(samples), samples[int(len(samples) * 0.99)]


def loopback_send(total_bytes: int) -> float:
    """GB/s from one process to another, sending from memory."""
    piece = memoryview(bytearray(PIECE_BYTES))

    def send(connection: socket.socket) -> None:
        for _ in range(total_bytes // PIECE_BYTES):
            connection.sendall(piece)

    return _through_loopback(send, total_bytes // PIECE_BYTES * PIECE_BYTES)


def loopback_sendfile(folder: Path, total_bytes: int) -> float:
    """GB/s from one process to another, sending a file out of the page cache."""
    path = folder / "limit-sendfile"
    file_bytes = min(total_bytes, 256 * MIB)
    path.write_bytes(os.urandom(MIB) * (file_bytes // MIB))
    file_bytes = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)

    def send(connection: socket.socket) -> None:
        left = total_bytes
        at = 0
        while left:
            sent = os.sendfile(connection.fileno(), descriptor, at, min(MIB, left, file_bytes - at))
            left -= sent
            at = (at + sent) % file_bytes

    try:
        return _through_loopback(send, total_bytes)
    finally:
        os.close(descriptor)
        path.unlink()


def checksum(total_bytes: int) -> float:
    """GB/s of CRC-32C over one mebibyte again and again."""
    piece = os.urandom(MIB)
    begin = time.monotonic()
    for _ in range(total_bytes // MIB):
        crc32c.crc32c(piece)
    return total_bytes // MIB * MIB / (time.monotonic() - begin) / 1e9


def _through_loopback(send: Callable[[socket.socket], None], total_bytes: int) -> float:
    """GB/s seen by a reader in this process, of what `send` sends in another."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            # Whatever happens, the child must not return into the parent's work.
            try:
                with socket.create_connection(server.getsockname()) as connection:
                    send(connection)
            finally:
                os._exit(0)
        try:
            server.settimeout(10)
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)
                return _drain(connection, total_bytes)
        finally:
            os.waitpid(child, 0)


def _drain(connection: socket.socket, total_bytes: int) -> float:
    buffer = memoryview(bytearray(MIB))
    received = 0
    begin = time.monotonic()
    while received < total_bytes:
        count = connection.recv_into(buffer)
        if not count:
            raise OSError(f"the sender stopped after {received} of {total_bytes} bytes")
        received += count
    return received / (time.monotonic() - begin) / 1e9
