"""How long other clients wait while a thousand clients log in at once.

    python -m bench.login_storm --clients 1000

A node is started with three listeners. One client of the open listener sends small requests all the
time; its response times are measured without and with the storm. Every client of the storm is a
different user, so no check is saved by an earlier one: PLAIN costs the node a derivation of the
password for each of them, SCRAM a few hashes, TLS a handshake with a P-256 key.

On a machine with few cores the clients of the storm alone delay the one that is measured. So each
storm is repeated against a second node while the client still uses the first one (`elsewhere`):
what these rows show is not a matter of the event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import multiprocessing
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.peers import END_WITH_US, free_ports
from bench.rows.tls import make_certificate

PASSWORD = "storm-password"
SALT = b"salt of the storm"
ITERATIONS = 4_096
TLS = "TLS"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", TLS)
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
UPSERTIONS_MAX = 200  # in one request
PROBE_SECONDS = 3.0
PROBE_PAUSE_SECONDS = 0.001
START_SECONDS_MAX = 30
STORM_SECONDS_MAX = 60


def frame(key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if is_flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def handshake(mechanism: str) -> bytes:
    return frame(17, 1, text(mechanism))


def authenticate(message: bytes) -> bytes:
    return frame(36, 1, struct.pack(">i", len(message)) + message)


# Users


def salted(mechanism: str) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], PASSWORD.encode(), SALT, ITERATIONS)


def compact(data: bytes) -> bytes:
    """Bytes or a text of less than 127 bytes, with their length."""
    return bytes([len(data) + 1]) + data


def upsertions(names: list[str]) -> bytes:
    """AlterUserScramCredentials: the same password for many users, which is derived once."""
    derived = [(1, salted("SCRAM-SHA-256")), (2, salted("SCRAM-SHA-512"))]
    entries = [
        compact(name.encode())
        + struct.pack(">bi", number, ITERATIONS)
        + compact(SALT)
        + compact(password)
        + b"\0"
        for name in names
        for number, password in derived
    ]
    count = len(entries) + 1
    size = bytes([count & 0x7F | 0x80, count >> 7]) if count > 127 else bytes([count])
    return frame(51, 0, b"\x01" + size + b"".join(entries) + b"\0", is_flexible=True)


def create_users(port: int, count: int) -> None:
    names = [f"storm-{number}" for number in range(count)]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        for at in range(0, count, UPSERTIONS_MAX):
            exchange(connection, upsertions(names[at : at + UPSERTIONS_MAX]))


def exchange(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    (length,) = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, length)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the node has closed the connection"
        data += piece
    return data


# The storm


def proof(mechanism: str, key: bytes, first: str, answer: bytes) -> bytes:
    digest = HASHES[mechanism]
    client_key = hmac.digest(key, b"Client Key", digest)
    final = f"c=biws,{answer.decode().partition(',')[0]}"
    signed = f"{first},{answer.decode()},{final}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    given = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{final},p={base64.b64encode(given).decode()}".encode()


async def log_in(port: int, mechanism: str, name: str, key: bytes) -> float:
    """Log in over a new connection; return how long it took."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(request: bytes) -> bytes:
        writer.write(request)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return (await reader.readexactly(length))[4:]

    await ask(handshake(mechanism))
    if mechanism == "PLAIN":
        answer = await ask(authenticate(f"\0{name}\0{PASSWORD}".encode()))
    else:
        first = f"n={name},r=nonce"
        answer = await ask(authenticate(f"n,,{first}".encode()))
        (length,) = struct.unpack_from(">i", answer, 4)
        answer = await ask(authenticate(proof(mechanism, key, first, answer[8 : 8 + length])))
    assert struct.unpack_from(">h", answer)[0] == 0, answer
    took = time.perf_counter() - began
    writer.close()
    return took


async def shake_hands(port: int, context: ssl.SSLContext) -> float:
    """Connect over TLS and ask something; return how long it took."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, ssl_handshake_timeout=STORM_SECONDS_MAX
    )
    writer.write(frame(18, 0, b""))
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(length)
    took = time.perf_counter() - began
    writer.close()
    return took


def storm(node: Node, mechanism: str, count: int, begin: float, priority: int) -> list[float]:
    """All clients at once, from a process of their own."""
    os.nice(priority)
    key = salted(mechanism) if mechanism in HASHES else b""
    context = ssl.create_default_context(cafile=node.authority)

    async def all_of_them() -> list[float]:
        await asyncio.sleep(max(0.0, begin - time.time()))
        if mechanism == TLS:
            return await asyncio.gather(*(shake_hands(node.tls, context) for _ in range(count)))
        names = [f"storm-{number}" for number in range(count)]
        return await asyncio.gather(*(log_in(node.sasl, mechanism, one, key) for one in names))

    return asyncio.run(all_of_them())


# The client that is measured


def probe(port: int, until: float) -> list[float]:
    """Response times of small requests, one after the other, in milliseconds."""
    request, times = frame(18, 0, b""), []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.time() < until:
            began = time.perf_counter()
            exchange(connection, request)
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(PROBE_PAUSE_SECONDS)
    return times


def row(name: str, times: list[float], took: float | None = None) -> str:
    ordered = sorted(times)
    shown = [ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1]]
    storm_text = "" if took is None else f"{took:.2f} s"
    return f"| {name} | {' | '.join(f'{one:.1f} ms' for one in shown)} | {storm_text} |"


def measure(
    node: Node, stormed: Node, mechanism: str, clients: int, priority: int
) -> tuple[list[float], float]:
    """Response times of `node` during a storm, and how long the storm took."""
    begin = time.time() + 1.0
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pending = pool.apply_async(storm, (stormed, mechanism, clients, begin, priority))
        probe(node.open, begin)
        times: list[float] = []
        while not pending.ready():
            assert time.time() < begin + STORM_SECONDS_MAX, "the storm does not end"
            times += probe(node.open, time.time() + 0.2)
        took = max(pending.get())
    return times, took


class Node(NamedTuple):
    """The ports of a running node, and the authority of its certificate."""

    open: int
    sasl: int
    tls: int
    authority: str


@contextmanager
def running(home: Path, users: int) -> Iterator[Node]:
    """Start a node with users, and end it."""
    open_port, sasl_port, tls_port, *others = free_ports(6)
    certificate = make_certificate(home)
    ready = home / "ready.json"
    command = [*END_WITH_US, sys.executable, "-m", "goqueue", "serve", "--data-dir"]
    command += [f"{home}/data", "--ready-file", str(ready), "--listen-kafka"]
    listeners = f"127.0.0.1:{open_port},sasl_plaintext://127.0.0.1:{sasl_port}"
    command += [f"{listeners},ssl://127.0.0.1:{tls_port}"]
    for name, port in zip(("http", "registry", "sqs"), others, strict=True):
        command += [f"--listen-{name}", f"127.0.0.1:{port}"]
    command += ["--set", "security.access_control=off"]
    command += ["--set", f"security.tls_certificate={certificate.certificate}"]
    command += ["--set", f"security.tls_key={certificate.key}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            assert time.monotonic() < deadline, "the node did not start"
            time.sleep(0.05)
        assert json.loads(ready.read_text())
        create_users(open_port, users)
        yield Node(open_port, sasl_port, tls_port, str(certificate.certificate))
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=1, help="of each storm")
    parser.add_argument("--mechanisms", default=",".join(MECHANISMS), help="some of these")
    parser.add_argument("--nice", type=int, default=0, help="of the process of the storm")
    wanted = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as home,
        running(Path(home, "one"), wanted.clients) as node,
        running(Path(home, "two"), wanted.clients) as second,
    ):
        print("| load | p50 | p99 | max | until all are logged in |")
        print("|---|---|---|---|---|")
        print(row("none", probe(node.open, time.time() + PROBE_SECONDS)), flush=True)
        for mechanism in wanted.mechanisms.split(","):
            for _ in range(wanted.runs):
                for where, stormed in (("here", node), ("elsewhere", second)):
                    name = f"{wanted.clients} clients, {mechanism}, {where}"
                    found = measure(node, stormed, mechanism, wanted.clients, wanted.nice)
                    print(row(name, *found), flush=True)


if __name__ == "__main__":
    main()
