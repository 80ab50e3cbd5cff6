"""The code and the commands of docs/grpc.md run as they stand, from the top to the bottom."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.peers import PeerUnavailable
from tests.integration.process import Broker
from tests.judge.grpc_clients import grpcurl

from .reflecting import call_as_grpcurl

PAGE = Path(__file__).parents[3] / "docs" / "grpc.md"
RUN_SECONDS_MAX = 60


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )  # fmt: skip


def commands() -> list[str]:
    [block] = blocks("sh")
    return block.replace("\\\n", " ").splitlines()


def test_the_python_of_the_page_runs(node: Broker, tmp_path: Path) -> None:
    found = blocks("python")
    assert len(found) == 2
    script = tmp_path / "page.py"
    script.write_text("\n".join(found).replace("127.0.0.1:9000", node.grpc), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "3 received by User:ANONYMOUS",
        "unknown_topic",
        "handled four",
    ]


def by_reflection(address: str, command: str) -> str:
    return "\n".join(map(str, call_as_grpcurl(address, command)))


def by_grpcurl(address: str, command: str) -> str:
    arguments = shlex.split(command.replace("localhost:9000", address))
    done = subprocess.run(
        [grpcurl(), *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "run",
    [
        by_reflection,
        pytest.param(
            by_grpcurl,
            marks=[
                pytest.mark.timeout(900),
                pytest.mark.skipif(
                    "GOQUEUE_TEST_TOOLS" not in os.environ,
                    reason="`make judge-grpc` runs grpcurl, which Go fetches",
                ),
            ],
        ),
    ],
)
def test_the_commands_of_the_page_do_what_they_say(
    run: Callable[[str, str], str], node: Broker, name: str
) -> None:
    try:
        answers = [run(node.grpc, one.replace("orders", name)) for one in commands()]
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    listed, described, health, created, published, received, pulled, acked = answers
    assert "goqueue.v1.PublishService" in listed
    assert "grpc.health.v1.Health" in listed
    assert "PublishService" in described
    assert "SERVING" in health
    assert name in created
    assert "schedule" in published
    assert name in received, "the message comes, and the stream ends without further credit"
    assert '"attempt": 2' in pulled or "attempt: 2" in pulled
    assert "invalid_receipt" in acked


def test_a_call_without_a_body_needs_none(node: Broker) -> None:
    [answer] = call_as_grpcurl(
        node.grpc, "grpcurl -plaintext localhost:9000 goqueue.v1.AdminService/GetCluster"
    )
    found: Any = answer
    assert found.node == found.controller
