"""ElasticMQ: an SQS server in Scala that keeps messages in memory.

The jars come from Maven once, into `.cache/elasticmq/<version>`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.peers import PeerUnavailable
from bench.peers.child import ChildPeer
from bench.peers.maven import fetch_jars
from bench.peers.sqs import serves

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


class ElasticMq(ChildPeer):
    """One running server."""

    def __init__(self, home: Path, version: str = ELASTICMQ_VERSION) -> None:
        super().__init__("ElasticMQ", home)
        self.version = version

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        """Start the server and wait until it serves."""
        java = shutil.which("java")
        if java is None:
            raise PeerUnavailable("ElasticMQ needs Java: `java` is not on the path.")
        jars = fetch_jars("elasticmq", self.version, POM.format(version=self.version))
        self._make_home()
        config = self._home / "elasticmq.conf"
        config.write_text(CONFIG.format(port=self._port))
        command = [
            *(java, *HEAP, f"-Dconfig.file={config}"),
            *("-cp", f"{jars}/*", "org.elasticmq.server.Main"),
        ]
        self._launch(command, lambda: serves(self.endpoint))
