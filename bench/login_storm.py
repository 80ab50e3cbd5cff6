"""How long other clients wait while a thousand clients log in at once.

    python -m bench.login_storm --clients 1000

A node is started with two listeners. One client of the open listener sends small requests all the
time; its response times are measured without and with the storm. Every client of the storm is a
different user, so no check is saved by an earlier one: PLAIN costs the node a derivation of the
password for each of them, SCRAM a few hashes.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import multiprocessing
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.peers import END_WITH_US, free_ports

PASSWORD = "storm-password"
SALT = b"salt of the storm"
ITERATIONS = 4_096
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
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


def storm(port: int, mechanism: str, count: int, begin: float) -> list[float]:
    """All clients at once, from a process of their own."""
    key = salted(mechanism) if mechanism in HASHES else b""

    async def all_of_them() -> list[float]:
        await asyncio.sleep(max(0.0, begin - time.time()))
        names = [f"storm-{number}" for number in range(count)]
        return await asyncio.gather(*(log_in(port, mechanism, one, key) for one in names))

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


def measure(open_port: int, sasl_port: int, mechanism: str, clients: int) -> str:
    begin = time.time() + 1.0
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pending = pool.apply_async(storm, (sasl_port, mechanism, clients, begin))
        times: list[float] = []
        while not pending.ready():
            assert time.time() < begin + STORM_SECONDS_MAX, "the storm does not end"
            times += probe(open_port, time.time() + 0.2)
        took = max(pending.get())
    return row(f"{clients} clients, {mechanism}", times, took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=1_000)
    wanted = parser.parse_args()
    open_port, sasl_port, *others = free_ports(5)
    with tempfile.TemporaryDirectory() as home:
        ready = Path(home, "ready.json")
        command = [*END_WITH_US, sys.executable, "-m", "goqueue", "serve", "--data-dir"]
        command += [f"{home}/data", "--ready-file", str(ready), "--listen-kafka"]
        command += [f"127.0.0.1:{open_port},sasl_plaintext://127.0.0.1:{sasl_port}"]
        for name, port in zip(("http", "registry", "sqs"), others, strict=True):
            command += [f"--listen-{name}", f"127.0.0.1:{port}"]
        command += ["--set", "security.access_control=off"]
        node = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not ready.exists():
                assert time.monotonic() < deadline, "the node did not start"
                time.sleep(0.05)
            assert json.loads(ready.read_text())
            create_users(open_port, wanted.clients)
            print("| load | p50 | p99 | max | until all are logged in |")
            print("|---|---|---|---|---|")
            print(row("none", probe(open_port, time.time() + PROBE_SECONDS)))
            for mechanism in MECHANISMS:
                print(measure(open_port, sasl_port, mechanism, wanted.clients))
        finally:
            node.terminate()
            node.wait(30)


if __name__ == "__main__":
    main()
