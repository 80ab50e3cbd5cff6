"""Ports for nodes, none of them given to two tests."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import struct
import tempfile
from functools import cache
from pathlib import Path

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
COUNT = 20_000


def quiet_port() -> int:
    """A port for a node, which nobody else takes before the node starts or while it is down.

    The process keeps the port until it ends, by a lock that other test processes see.
    """
    locks, ports = _claims()
    while ports:
        port = ports.pop()
        if _is_claimed(locks, port) and _is_free(port):
            return port
    raise RuntimeError(f"all {COUNT} ports for tests are taken")


@cache
def _claims() -> tuple[int, list[int]]:
    """The file whose bytes stand for the ports, and the ports not yet tried by this process."""
    locks = os.open(
        Path(tempfile.gettempdir()) / f"goqueue-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT
    )
    # Below the ports that the kernel hands to outgoing connections: a client that keeps asking
    # for a port nobody listens on can be given that very port, and so keep the node off it.
    end = int(EPHEMERAL.read_text().split()[0])
    ports = list(range(max(2_000, end - COUNT), end))
    random.shuffle(ports)
    return locks, ports


def _is_claimed(locks: int, port: int) -> bool:
    # A lock of the open file and not of the process, which may import this module twice, as
    # `integration.ports` and as `tests.integration.ports`.
    claim = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, port, 1, 0)
    try:
        fcntl.fcntl(locks, fcntl.F_OFD_SETLK, claim)
    except BlockingIOError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
