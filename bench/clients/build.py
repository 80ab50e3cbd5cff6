"""Compiles the load generators, once per source, into a cache folder."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent
HEADERS = ("timing.h", "frames.h", "http.h", "peer.h", "lanes.h", "pace.h", "rabbitmq.h")
COMPILE_SECONDS_MAX = 600  # a Go client is built with all that it needs
# Packages of Debian, by what a compiler misses without them.
LIBRARIES = {
    "librdkafka/rdkafka.h": "librdkafka-dev",
    "amqp.h": "librabbitmq-dev",
    "hiredis/hiredis.h": "libhiredis-dev",
}


class ToolMissing(Exception):
    """A program cannot be built here; the text says what to install."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The C programs, or why they cannot be had."""

    cache: Path

    def raw_bench(self) -> Path:
        """The generator of prebuilt frames."""
        return self._build("raw_bench", libraries=())

    def sink(self) -> Path:
        """The server that discards."""
        return self._build("sink", libraries=())

    def rdkafka_bench(self) -> Path:
        """The librdkafka client."""
        return self._build("rdkafka_bench", libraries=("-lrdkafka", "-lpthread"))

    def http_bench(self) -> Path:
        """The HTTP client that publishes."""
        return self._build("http_bench", libraries=())

    def queue_bench(self) -> Path:
        """The HTTP client that consumes from queue groups."""
        return self._build("queue_bench", libraries=())

    def http_sink(self) -> Path:
        """The HTTP server that discards."""
        return self._build("http_sink", libraries=())

    def http_schedules(self) -> Path:
        """The HTTP client that schedules and cancels."""
        return self._build("http_schedules", libraries=())

    def rdkafka_schedules(self) -> Path:
        """The librdkafka client that schedules, and watches what is released."""
        return self._build("rdkafka_schedules", libraries=("-lrdkafka", "-lpthread"))

    def rdkafka_groups(self) -> Path:
        """The librdkafka client that is all members of a consumer group."""
        return self._build("rdkafka_groups", libraries=("-lrdkafka", "-lpthread"))

    def rabbitmq_bench(self) -> Path:
        """The RabbitMQ client."""
        return self._build("rabbitmq_bench", libraries=("-lrabbitmq", "-lpthread"))

    def redis_bench(self) -> Path:
        """The Redis client."""
        return self._build("redis_bench", libraries=("-lhiredis", "-lpthread"))

    def nats_publish(self) -> Path:
        """The publisher of NATS, which needs no library."""
        return self._build("nats_publish", libraries=())

    def nats_bench(self) -> Path:
        """The NATS client for all but publishing, which is written in Go."""
        return self._build_go("nats_bench")

    def share_bench(self) -> Path:
        """The client of share groups, in Go too: none in C speaks them."""
        return self._build_go("share_bench")

    def grpc_bench(self) -> Path:
        """The client of gRPC streams, in Go."""
        return self._build_go("grpc_bench")

    def _build_go(self, name: str) -> Path:
        folder = SOURCES / name
        program = self.cache / f"{name}-{_digest(sorted(folder.iterdir()))}"
        if program.exists():
            return program
        go = shutil.which("go")
        if go is None:
            raise ToolMissing(f"{name} is written in Go: install Go")
        partial = program.with_suffix(".partial")
        self._compile([go, "build", "-o", str(partial.resolve())], name, folder=folder)
        partial.rename(program)
        return program

    def _build(self, name: str, libraries: tuple[str, ...]) -> Path:
        source = SOURCES / f"{name}.c"
        headers = (SOURCES / header for header in HEADERS)
        program = self.cache / f"{name}-{_digest((source, *headers))}"
        if program.exists():
            return program
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise ToolMissing("no C compiler here: install gcc")
        partial = program.with_suffix(".partial")
        self._compile([compiler, "-O2", "-Wall", "-o", str(partial), str(source), *libraries], name)
        partial.rename(program)
        return program

    def _compile(self, command: list[str], name: str, folder: Path | None = None) -> None:
        self.cache.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(
            command,
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=COMPILE_SECONDS_MAX,
        )
        if result.returncode == 0:
            return
        for header, library in LIBRARIES.items():
            if f"{header}: No such file" in result.stderr:
                raise ToolMissing(f"the headers are missing: install {library}")
        raise ToolMissing(f"{name} does not compile here: {result.stderr.strip()[:400]}")


def _digest(sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
