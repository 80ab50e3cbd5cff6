"""Apache Kafka: one node, broker and controller in one process, on loopback.

The jars come from Maven once, into `.cache/kafka/<version>`; a node then lives in a temporary
directory of its own. JVM options are those of Kafka's own start script.

    with Kafka(properties={"log.flush.interval.messages": "1"}) as kafka:
        measure(kafka.bootstrap)

Run as a program it serves until interrupted, and prints the address to connect to:

    python -m bench.peers.kafka --set num.partitions=6
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.peers import END_WITH_US, PeerUnavailable, free_ports
from bench.peers.maven import fetch_jars

KAFKA_VERSION = "4.3.1"
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30

HEAP = ("-Xmx1G", "-Xms1G")
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>goqueue.bench</groupId>
  <artifactId>kafka-peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.4</version>
    </dependency>
  </dependencies>
</project>
"""

LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
"""


class Kafka:
    """One running Apache Kafka node; a context manager that starts it and cleans up after it."""

    def __init__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        heap: tuple[str, ...] = HEAP,
        log_level: str = "warn",
        directory: Path | None = None,
        ports: tuple[int, int] | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """Nodes of one cluster are told their ports, for clients and controllers, and its id."""
        self.version = version
        self._extra_properties = dict(properties or {})
        self._heap = heap
        self._log_level = log_level
        self._parent = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._home: Path | None = None
        self._ports = ports
        self._cluster_id = cluster_id or str(uuid.uuid4())
        self._port, self._controller_port = ports or (0, 0)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The address to give to a client."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        assert self._process is not None, "the node has not been started"
        return self._process.pid

    @property
    def home(self) -> Path:
        """The folder with the node's settings, log output and data."""
        assert self._home is not None, "the node has not been started"
        return self._home

    @property
    def data_dir(self) -> Path:
        """The folder with the node's partitions."""
        return self.home / "data"

    def log_text(self) -> str:
        """All the node has printed so far."""
        return (self.home / "kafka.out").read_text(errors="replace")

    def start(self) -> None:
        """Start the node, formatting its storage the first time, and wait until it serves."""
        self.launch()
        self.wait_until_serving()

    def launch(self) -> None:
        """Start the node; one of a cluster serves when most of them run."""
        if self._home is None:
            self.prepare()
        with (self.home / "kafka.out").open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self.home / "server.properties"), options=self._heap),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Shut down in order, as an operator would; the data stays for the next start."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, as a crash would; the data stays for the next start."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stop the node and remove its data."""
        self.kill()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    def prepare(self) -> None:
        """Fetch what the node runs from, and format its storage; the first start does it else."""
        jars = fetch_jars("kafka", self.version, POM.format(version=self.version))
        self._home = Path(tempfile.mkdtemp(prefix="kafka-peer-", dir=self._parent))
        self._jars = jars
        if self._ports is None:
            self._port, self._controller_port = free_ports(2)
        settings = self._properties() | self._extra_properties
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.home / "server.properties").write_text("".join(lines))
        (self.home / "log4j2.properties").write_text(LOG4J.format(level=self._log_level))
        result = subprocess.run(
            self._java(
                "kafka.tools.StorageTool",
                *("format", "--cluster-id", self._cluster_id),
                *("--config", str(self.home / "server.properties")),
            ),
            check=False,
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            raise PeerUnavailable(f"Kafka could not format its storage:\n{result.stderr}")

    def _properties(self) -> dict[str, str]:
        controller = f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # Kafka's own sample settings choose this for a single node.
            "group.initial.rebalance.delay.ms": "0",
        }

    def _java(self, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.home / 'log4j2.properties'}"
        classpath = ("-cp", f"{self._jars}/*")
        return [
            *END_WITH_US,
            _program("java", "A Java runtime"),
            *options,
            *JVM_OPTIONS,
            logging,
            *classpath,
            main,
            *arguments,
        ]

    def wait_until_serving(self) -> None:
        """Return when the node answers."""
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise PeerUnavailable(f"Kafka ended while starting:\n{self.log_text()[-4000:]}")
            if _serves(self._port):
                return
            time.sleep(0.05)
        raise PeerUnavailable(f"Kafka did not serve within {START_SECONDS_MAX} s")

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None


# An ApiVersions request, version 0, with no client id: eight bytes of header and a null string.
_PROBE = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def _serves(port: int) -> bool:
    """Whether a broker on this port answers a request, not only accepts a connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(_PROBE)
            return len(connection.recv(4)) > 0
    except OSError:
        return False


def _program(name: str, title: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PeerUnavailable(
            f"{title} is needed to run Apache Kafka: `{name}` is not on the path."
        )
    return found


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Run one Apache Kafka node on loopback.")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--log-level", default="warn")
    arguments = parser.parse_args()
    properties = dict(setting.split("=", 1) for setting in arguments.set)
    with Kafka(properties=properties, log_level=arguments.log_level) as kafka:
        print(kafka.bootstrap, f"pid={kafka.pid}", f"home={kafka.home}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            os.waitpid(kafka.pid, 0)


if __name__ == "__main__":
    main()
