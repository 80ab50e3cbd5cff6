"""Every block of docs/security/clients.md runs as it stands, in order, against TLS and SASL."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .encrypted import ADMIN_PASSWORD, EncryptedBroker
from .pages import ANN_PASSWORD, ROOT, Block, blocks, execute, prepare, run

SPARK = "Spark"  # its blocks run with the tests of Spark
# What a block prints, or a part of it.
PRINTED = {
    "A broker, a user and keys": "User:admin",
    "kcat": "from kcat",
    "confluent-kafka": "from ",
    "aiokafka": "from ",
    "curl": "User:ann",
    "boto3": "from boto3",
    "goqueue": "User:ann",
    "Python": "password",
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptedBroker]:
    made = EncryptedBroker(tmp_path_factory.mktemp("encrypted"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def of_serve() -> Block:
    return next(one for one in blocks() if one.text.startswith("goqueue serve"))


def test_the_code_of_the_page_runs(node: EncryptedBroker, tmp_path: Path) -> None:
    prepare(tmp_path, node)
    seen = set()
    for block in blocks():
        if block.language not in ("sh", "python", "properties") or block.section == SPARK:
            continue
        printed = run(block, node, tmp_path)
        seen.add(block.section)
        assert PRINTED.get(block.section, "") in printed, f"line {block.line}:\n{printed}"
        if block.language != "properties":
            assert ANN_PASSWORD not in printed
            assert ADMIN_PASSWORD not in printed
    assert seen >= PRINTED.keys()
    for name in ("kcat.conf", "ann.key.json", "ann.header", ".config/goqueue/config.yaml"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
    run_java(node, tmp_path)


def run_java(node: EncryptedBroker, folder: Path) -> None:
    """Compile and run the program for Java, where there is one and Kafka's client was fetched."""
    jars = sorted(ROOT.glob(".cache/kafka/*/"))
    if shutil.which("javac") is None or not jars:
        return
    block = next(one for one in blocks() if one.language == "java")
    (folder / "Send.java").write_text(block.text)
    path = f"{jars[-1]}/*"
    execute(["javac", "-cp", path, "Send.java"], folder)
    execute(["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{path}:.", "Send"], folder)
    read = "kcat -F kcat.conf -C -t orders -o beginning -e -q"
    assert "from Java" in execute(["bash", "-c", read], folder)


def test_the_flags_of_serve_are_taken(tmp_path: Path) -> None:
    words = shlex.split(of_serve().text.replace("\\\n", " "))
    for name in ("broker.pem", "broker.key"):
        (tmp_path / name).touch(0o600)
    done = subprocess.run(
        [sys.executable, "-m", *words, "--print-config"],
        cwd=tmp_path,
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sasl_ssl://0.0.0.0:9093" in done.stdout
    assert "admin:PASSWORD" not in done.stdout
