"""A program of Kafka Streams, which Maven fetches: it counts words, exactly once."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.peers import PeerUnavailable
from bench.peers.kafka import KAFKA_VERSION
from bench.peers.maven import fetch_jars

_SOURCE = Path(__file__).parent / "clients" / "WordCount.java"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>test</groupId><artifactId>test</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka-streams</artifactId><version>{KAFKA_VERSION}</version></dependency></dependencies>
</project>"""


def word_count() -> list[str]:
    """The command: it takes BOOTSTRAP APPLICATION INPUT OUTPUT PROTOCOL FOLDER."""
    if shutil.which("javac") is None:
        raise PeerUnavailable("there is no Java compiler")
    jars = fetch_jars("kafka-streams-client", KAFKA_VERSION, _POM)
    options = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*")
    return ["java", *options, str(_SOURCE)]
