"""Apache Kafka's own command line tools, run against a broker.

python -m tests.judge.tools kafka-features --bootstrap-server 127.0.0.1:9092 describe
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers import PeerUnavailable
from bench.peers.kafka import KAFKA_VERSION, POM
from bench.peers.maven import fetch_jars

TOOL_SECONDS_MAX = 120
_TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "kafka-acls": f"{_TOOLS}.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-features": f"{_TOOLS}.FeatureCommand",
    "kafka-leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "kafka-reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
}
_TOOLS_POM = POM.replace("kafka_2.13", "kafka-tools").replace("kafka-peer", "kafka-tools")


def jars() -> Path:
    """The folder with the jars of the tools and of Kafka, fetched by Maven the first time."""
    # The tools need Kafka's own jars beside theirs, and one pom can name both.
    server = POM.split("<dependency>")[1].split("</dependency>")[0]
    pom = _TOOLS_POM.replace(
        "</dependencies>", f"<dependency>{server}</dependency></dependencies>"
    ).format(version=KAFKA_VERSION)
    return fetch_jars("kafka-tools", KAFKA_VERSION, pom)


def run_tool(name: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool to its end."""
    java = shutil.which("java")
    if java is None:
        raise PeerUnavailable("A Java runtime is needed: `java` is not on the path.")
    command = [java, "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*", CLASSES[name]]
    return subprocess.run(
        [*command, *arguments],
        check=False,
        capture_output=True,
        text=True,
        input=given,
        timeout=TOOL_SECONDS_MAX,
    )


if __name__ == "__main__":
    done = run_tool(sys.argv[1], *sys.argv[2:])
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)
