"""The servers that are measured: GoQueue, the sinks and echoes, and Apache Kafka."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.processes import REPOSITORY, end_process

START_SECONDS_MAX = 60
POLL_SECONDS = 0.002

# Metadata v1 for no topic: the smallest question that only a serving broker answers.
_METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)


class Unavailable(Exception):
    """A system cannot be started here. The text says why."""


class System(Protocol):
    """A running server that speaks Kafka."""

    name: str
    is_storing: bool

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def data_dir(self) -> Path: ...

    def close(self) -> None: ...


class Server:
    """A child process that writes its address into a ready file."""

    def __init__(self, name: str, command: Sequence[str], home: Path, is_storing: bool) -> None:
        self.name = name
        self.is_storing = is_storing
        self._command = tuple(command)
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._addresses: dict[str, str] = {}

    @property
    def bootstrap(self) -> str:
        return self._addresses.get("kafka", "")

    @property
    def http(self) -> str:
        """The address of the HTTP listener."""
        if "http" not in self._addresses:
            raise Unavailable(f"{self.name} does not listen for HTTP")
        return self._addresses["http"]

    @property
    def kafka_over_tls(self) -> str:
        """The address of the Kafka listener with TLS."""
        return self._addresses["kafka-ssl"]

    @property
    def sqs(self) -> str:
        """The address of the SQS listener."""
        if "sqs" not in self._addresses:
            raise Unavailable(f"{self.name} does not speak SQS")
        return self._addresses["sqs"]

    @property
    def grpc(self) -> str:
        """The address of the gRPC listener."""
        if "grpc" not in self._addresses:
            raise Unavailable(f"{self.name} does not speak gRPC")
        return self._addresses["grpc"]

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def data_dir(self) -> Path:
        return self._home / "data"

    def start(self) -> float:
        """Start, and return the seconds until a metadata request was answered.

        A server that does not speak Kafka has started when it says so.
        """
        ready = self._home / "ready"
        self._home.mkdir(parents=True, exist_ok=True)
        ready.unlink(missing_ok=True)
        begin = time.monotonic()
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--ready-file", str(ready)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        self._addresses = self._wait_for_addresses(ready, begin + START_SECONDS_MAX)
        if self.bootstrap:
            ask_metadata(self.bootstrap)
        return time.monotonic() - begin

    def stop(self) -> None:
        """Shut down in order; the data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once, as a crash would; the data stays."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the process and remove everything it wrote."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            end_process(self._process, how)
            self._process = None

    def _wait_for_addresses(self, ready: Path, deadline: float) -> dict[str, str]:
        assert self._process is not None
        while time.monotonic() < deadline:
            if ready.exists() and (text := ready.read_text()):
                return {name: str(where) for name, where in json.loads(text).items()}
            if self._process.poll() is not None:
                log = (self._home / "log").read_text(errors="replace").strip()
                last = log.splitlines()[-1][:200] if log else "it said nothing"
                raise Unavailable(f"{self.name} ended while starting: {last}")
            time.sleep(POLL_SECONDS)
        self.kill()
        raise Unavailable(f"{self.name} did not serve within {START_SECONDS_MAX} s")


class KafkaNode:
    """Apache Kafka as `bench.peers` starts it."""

    name = "Apache Kafka"
    is_storing = True

    def __init__(self, home: Path, properties: Mapping[str, str] | None = None) -> None:
        """`properties` may refer to the ports of the node as `{kafka}` and `{controller}`."""
        # Imported here, because only a run that asks for peers needs it.
        from bench.peers import PeerUnavailable, free_ports
        from bench.peers.kafka import Kafka

        home.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2)
        at = {"kafka": f"127.0.0.1:{ports[0]}", "controller": f"127.0.0.1:{ports[1]}"}
        filled = {name: text.format(**at) for name, text in (properties or {}).items()}
        self._kafka = Kafka(directory=home, properties=filled, ports=(ports[0], ports[1]))
        try:
            self._kafka.start()
        except PeerUnavailable as error:
            self._kafka.close()
            raise Unavailable(str(error)) from error
        except BaseException:
            self._kafka.close()
            raise

    @property
    def version(self) -> str:
        return self._kafka.version

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def pid(self) -> int:
        return self._kafka.pid

    @property
    def data_dir(self) -> Path:
        return self._kafka.data_dir

    def restart(self) -> float:
        """Stop in order, and return the seconds the next start took."""
        self._kafka.stop()
        begin = time.monotonic()
        self._kafka.start()
        ask_metadata(self.bootstrap)
        return time.monotonic() - begin

    def close(self) -> None:
        self._kafka.close()


def goqueue(
    name: str,
    home: Path,
    settings: Mapping[str, Any],
    *,
    checkout: Path = REPOSITORY,
    kafka: str = "127.0.0.1:0",
) -> Server:
    """A GoQueue node, not yet started, of this or another checkout that is set up."""
    python = sys.executable if checkout == REPOSITORY else str(checkout / ".venv/bin/python")
    command = [
        *(python, "-m", "goqueue", "serve"),
        *("--data-dir", str(home / "data"), "--listen-kafka", kafka),
        *("--listen-http", "127.0.0.1:0", "--listen-registry", "127.0.0.1:0"),
        *("--listen-sqs", "127.0.0.1:0"),
    ]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return Server(name, command, home, is_storing=True)


def ask_metadata(bootstrap: str) -> None:
    """Return when the server at this address has answered a metadata request."""
    host, port = bootstrap.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=START_SECONDS_MAX) as connection:
        connection.sendall(_METADATA_REQUEST)
        head = _receive(connection, 8)
        length, correlation = struct.unpack(">ii", head)
        _receive(connection, length - 4)
        if correlation != 1:
            raise Unavailable("the answer to a metadata request has the wrong id")


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise Unavailable("the connection was closed instead of answering")
        data += piece
    return data
