"""The tutorial of a cluster runs as it stands, against three nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT, Reader

from .process import END_WITH_US, STOP_SECONDS_MAX
from .waiting import eventually

PAGE = ROOT / "docs" / "tutorials" / "10-cluster.md"
NODES = 3
LISTENERS = ("kafka", "http", "sqs", "registry", "internal")

pytestmark = [pytest.mark.timeout(300), pytest.mark.single_node("starts three nodes of its own")]


@pytest.fixture
def addresses(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where three nodes of `goqueue serve --shards 3` listen, which is what `make cluster` runs."""
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "goqueue", "serve", "--shards", str(NODES)]
    command += ["--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)]
    command += [word for name in LISTENERS for word in (f"--listen-{name}", "127.0.0.1:0")]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen([*END_WITH_US, *command], stdout=output, stderr=output)
    try:
        eventually(
            lambda: ready.exists() or process.poll() is not None, because="they serve", within=120
        )
        assert process.poll() is None, (tmp_path / "output").read_text()
        yield json.loads(ready.read_text())
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)


def test_the_page_prints_what_it_shows(addresses: dict[str, str], tmp_path: Path) -> None:
    meant = {
        "127.0.0.1:9092": addresses["kafka"].split(",")[0],
        "127.0.0.1:8080": addresses["http"].split(",")[0],
        "data/cluster": str(tmp_path / "data"),
    }
    home = tmp_path / "home"
    home.mkdir()
    reader = Reader(home, meant)
    try:
        reader.follow(PAGE)
    finally:
        reader.close()
