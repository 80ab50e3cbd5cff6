"""Every block of the README runs as it stands, in order, on a fresh broker, and then once more."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from .process import Broker

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
RUN_SECONDS_MAX = 90
ROUNDS = 2
# A refusal must end the block: curl alone takes any answer for a success.
PRELUDE = (
    'set -euo pipefail\ncurl() { command curl --silent --show-error --fail-with-body "$@"; }\n'
)
FOREVER = "worker.run()"

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.single_node("follows a page that starts one"),
]


class Block(NamedTuple):
    line: int
    language: str
    text: str


def blocks() -> list[Block]:
    text = README.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [Block(text[: one.start()].count("\n") + 1, one[1], one[2]) for one in found]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    node = Broker(tmp_path, {})
    try:
        node.start()
        yield node
    finally:
        node.close()


def is_of_make(block: Block) -> bool:
    return block.text.startswith("make ")


def is_of_serve(block: Block) -> bool:
    return block.text.startswith("goqueue serve ")


def test_every_block_has_a_language_that_is_checked_here() -> None:
    assert {one.language for one in blocks()} == {"sh", "python", "console", "mermaid"}


def test_the_blocks_run_in_order_twice(broker: Broker, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {name: text for name, text in os.environ.items() if "GOQUEUE" not in name} | {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GOQUEUE_BOOTSTRAP": broker.bootstrap,
    }
    for round_ in range(ROUNDS):
        for block in blocks():
            if block.language not in ("sh", "python") or is_of_make(block) or is_of_serve(block):
                continue
            text = at_broker(block.text, broker)
            if block.language == "sh":
                command = ["bash", "-c", PRELUDE + text]
            else:
                command = [sys.executable, "-u", "-c", text]
            code, output = run(command, home, environment, is_endless=FOREVER in text)
            assert code == 0, f"round {round_}, README.md line {block.line}:\n{output}"
            assert '"failed":1' not in output, f"README.md line {block.line}:\n{output}"
            assert "Traceback" not in output, f"README.md line {block.line}:\n{output}"


def at_broker(text: str, broker: Broker) -> str:
    """The same with the addresses of the broker of the test, which has other ports."""
    http = broker.http.removeprefix("http://")
    text = text.replace("Client()", f'Client("{http}")')
    return text.replace("localhost:8080", http).replace("127.0.0.1:9092", broker.bootstrap)


def run(
    command: list[str], home: Path, environment: dict[str, str], *, is_endless: bool
) -> tuple[int, str]:
    """Run a block to its end; one that works for ever is stopped once it has printed something."""
    with subprocess.Popen(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        output = ""
        try:
            if is_endless:
                assert process.stdout is not None
                output = process.stdout.readline()
                process.send_signal(signal.SIGINT)
            output += process.communicate(timeout=RUN_SECONDS_MAX)[0]
        finally:
            process.kill()
    return process.returncode, output


@pytest.mark.parametrize(
    "block", [*filter(is_of_make, blocks())], ids=lambda one: f"line {one.line}"
)
def test_the_targets_of_make_exist(block: Block) -> None:
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        done = subprocess.run(
            ["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "block", [*filter(is_of_serve, blocks())], ids=lambda one: f"line {one.line}"
)
def test_the_flags_of_serve_are_taken(block: Block) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(block.text.replace("\\\n", " ")), "--print-config"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_consoles_show_what_is_really_printed() -> None:
    for block in blocks():
        if block.language == "console":
            command, printed = block.text.split("\n", 1)
            done = subprocess.run(
                [sys.executable, "-m", *shlex.split(command.removeprefix("$ "))],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout + done.stderr == printed, f"README.md line {block.line}"
