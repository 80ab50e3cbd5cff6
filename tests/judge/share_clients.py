"""Share consumers in Java and in Go, as commands: CLIENT BOOTSTRAP GROUP TOPIC story|drain."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from bench.peers import PeerUnavailable
from bench.peers.maven import CACHE, fetch_jars

SOURCES = Path(__file__).parent / "clients"
JAVA_VERSION = "4.4.0"
BUILD_SECONDS_MAX = 300
_POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>test</groupId><artifactId>test</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka-clients</artifactId><version>{JAVA_VERSION}</version></dependency></dependencies>
</project>"""


def java() -> list[str]:
    """The Java client, which compiles the program when it starts."""
    if shutil.which("javac") is None:
        raise PeerUnavailable("there is no Java compiler")
    jars = fetch_jars("kafka-clients", JAVA_VERSION, _POM)
    options = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*")
    return ["java", *options, str(SOURCES / "ShareStory.java")]


def franz_go() -> list[str]:
    """franz-go, compiled once for each state of its source."""
    source = SOURCES / "franz_share"
    text = b"".join(one.read_bytes() for one in sorted(source.iterdir()))
    program = CACHE / f"franz_share-{hashlib.sha256(text).hexdigest()[:12]}"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise PeerUnavailable("`go` is not on the path")
        program.parent.mkdir(exist_ok=True)
        partial = program.with_suffix(".partial")
        subprocess.run(
            [go, "build", "-o", str(partial.resolve())],
            cwd=source,
            check=True,
            timeout=BUILD_SECONDS_MAX,
        )
        partial.rename(program)
    return [str(program)]


CLIENTS = {"java": java, "franz-go": franz_go}
