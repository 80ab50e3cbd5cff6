"""The code of docs/security/clients.md, made to run against a node of a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .encrypted import ADMIN_PASSWORD, EncryptedBroker

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "security" / "clients.md"
RUN_SECONDS_MAX = 240  # Spark starts several Pythons, on a machine that may be busy
ANN_PASSWORD = "planted-Ann-passw0rd"
# Spark's own daemon prints this if the session ends while one of its workers does.
STOPPED_WORKER = re.compile(
    r"^Traceback.*\n(  File .*/pyspark/daemon\.py.*\n(    .*\n)*)+BrokenPipeError: .*\n",
    re.MULTILINE,
)
# A refusal must end the block: curl alone takes any answer for a success.
PRELUDE = (
    'set -euo pipefail\ncurl() { command curl --silent --show-error --fail-with-body "$@"; }\n'
)


class Block(NamedTuple):
    section: str
    line: int
    language: str
    text: str


def blocks() -> list[Block]:
    text = PAGE.read_text(encoding="utf-8")
    found = []
    for one in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        before = text[: one.start()]
        section = re.findall(r"^## (.*)$", before, re.MULTILINE)[-1]
        found.append(Block(section, before.count("\n") + 1, one[1], one[2]))
    return found


def prepare(folder: Path, node: EncryptedBroker) -> None:
    """The files that the page supposes."""
    (folder / "ca.pem").write_text(Path(node.ca_file).read_text())
    (folder / "admin.password").write_text(ADMIN_PASSWORD + "\n")
    (folder / "ann.password").write_text(ANN_PASSWORD + "\n")


def run(block: Block, node: EncryptedBroker, folder: Path) -> str:
    """Run a block to its end; what it printed."""
    text = block.text
    for written, meant in (
        ("https://queue.example.com:8443", node.http),
        ("https://queue.example.com:8444", node.registry),
        ("https://queue.example.com:9324", node.sqs),
        ("queue.example.com:9093", node.bootstrap),
        ("PASSWORD", ANN_PASSWORD if block.language == "properties" else "PASSWORD"),
    ):
        text = text.replace(written, meant)
    if block.language == "properties":
        (folder / "client.properties").write_text(text)
        return text
    shell = ["bash", "-c", PRELUDE + text]
    return execute(shell if block.language == "sh" else [sys.executable, "-c", text], folder)


def plain_environment(folder: Path) -> dict[str, str]:
    """The environment of a person whose home is the folder, with `goqueue` on the path."""
    return {
        **{name: one for name, one in os.environ.items() if "GOQUEUE" not in name},
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def execute(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=plain_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, f"{command[:2]}:\n{printed}"
    before, found, after = STOPPED_WORKER.sub("", printed).partition("Traceback")
    assert not found, f"...{before[-1000:]}{found}{after[:4000]}"
    return printed
