"""The first minute of docs/sqs.md runs as it stands, and the rest of its Python code after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from .conftest import StartBroker
from .process import Broker

PAGE = Path(__file__).parents[2] / "docs" / "sqs.md"
RUN_SECONDS_MAX = 60


def test_the_code_of_the_page_runs(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    blocks = code_of("python", broker)
    assert len(blocks) == 5
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    assert run([sys.executable, str(script)]).splitlines() == ["a harp"]

    commands = code_of("sh", broker)[0]
    assert '"Body": "dear reader"' in run(["bash", "-euo", "pipefail", "-c", commands])


def code_of(language: str, broker: Broker) -> list[str]:
    """The blocks of a language, with the addresses of this node."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    addresses = {
        "http://127.0.0.1:9324": broker.sqs,
        "http://127.0.0.1:8080": broker.http,
        "127.0.0.1:9092": broker.bootstrap,
    }
    for written, meant in addresses.items():
        blocks = [block.replace(written, meant) for block in blocks]
    return blocks


def run(command: list[str]) -> str:
    programs = Path(sys.executable).parent
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
