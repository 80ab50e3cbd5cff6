"""ElasticMQ: an SQS server in Scala that keeps messages in memory.

The jars come from Maven once, into `.cache/elasticmq/<version>`.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from bench.peers import END_WITH_US, PeerUnavailable, free_ports
from bench.peers.maven import fetch_jars
from bench.peers.sqs import wait_until_serving
from bench.processes import end_process

ELASTICMQ_VERSION = "1.6.11"
HEAP = ("-Xmx1G", "-Xms1G")

# The server names its own test helpers as something that it needs; they were never published.
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>goqueue.bench</groupId>
  <artifactId>elasticmq-peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.elasticmq</groupId>
      <artifactId>elasticmq-server_2.13</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion>
          <groupId>org.elasticmq</groupId>
          <artifactId>elasticmq-common-test_2.13</artifactId>
        </exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""

CONFIG = """\
include classpath("application.conf")
generate-node-address = false
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{
  enabled = true
  bind-hostname = "127.0.0.1"
  bind-port = {port}
  sqs-limits = strict
}}
rest-stats {{ enabled = false }}
"""


class ElasticMq:
    """One running server."""

    def __init__(self, home: Path, version: str = ELASTICMQ_VERSION) -> None:
        self.version = version
        self._home = home
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it serves."""
        java = shutil.which("java")
        if java is None:
            raise PeerUnavailable("ElasticMQ needs Java: `java` is not on the path.")
        jars = fetch_jars("elasticmq", self.version, POM.format(version=self.version))
        self._home.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        config = self._home / "elasticmq.conf"
        config.write_text(CONFIG.format(port=self._port))
        with (self._home / "out").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(*END_WITH_US, java, *HEAP, f"-Dconfig.file={config}"),
                    *("-cp", f"{jars}/*", "org.elasticmq.server.Main"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                start_new_session=True,
            )
        wait_until_serving("ElasticMQ", self.endpoint, self._process, self._home / "out")

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            end_process(self._process, signal.SIGKILL)
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)
