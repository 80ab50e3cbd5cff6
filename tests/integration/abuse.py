"""What an abuser costs a node: its memory, at the worst and afterwards, and the time of others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from .process import Broker
from .waiting import eventually

MiB = 1 << 20
GROWTH_BYTES_MAX = 200 * MiB  # above the idle node, at the worst moment
KEPT_BYTES_MAX = 64 * MiB  # above the idle node, when it is over
GIVEN_BACK_SECONDS_MAX = 20.0
BUSY_SECONDS_MAX = 0.5  # that the event loop spends on others while a bystander waits
WALL_SECONDS_MAX = 10.0  # generous: the machine may be busy with something else
BYSTANDER = Path(__file__).with_name("bystander.py")


@contextmanager
def bounded(node: Broker, *, growth: int = GROWTH_BYTES_MAX) -> Iterator[None]:
    """Whatever is done to the node in the block costs little memory and no other client's time."""
    idle = node.rss_bytes
    _reset_peak(node)
    with prompt(node):
        yield
    peak = _peak_bytes(node)
    assert peak - idle < growth, f"grew from {idle // MiB} MiB to {peak // MiB} MiB"
    eventually(
        lambda: node.rss_bytes - idle < KEPT_BYTES_MAX,
        because="the node gives the memory back",
        within=GIVEN_BACK_SECONDS_MAX,
    )


@contextmanager
def prompt(node: Broker, *, busy: float = BUSY_SECONDS_MAX) -> Iterator[None]:
    """Whatever is done to the node in the block costs no other client's time."""
    with _bystander(node) as measured:
        yield
    assert measured["busy"] < busy, f"another client was kept waiting: {measured}"
    assert measured["wall"] < WALL_SECONDS_MAX, f"another client was kept waiting: {measured}"


def receive(node: Broker, group: str, topic: str, count: int) -> list[Any]:
    """Messages for a queue group; a node that is busy is asked again, as its answer says."""

    def received() -> list[Any]:
        wanted = {"topic": topic, "max_messages": count, "wait_ms": 5000}
        answer = httpx.post(f"{node.http}/v1/groups/{group}/receive", json=wanted, timeout=60)
        if answer.status_code == 503:
            return []
        assert answer.is_success, answer.text[:500]
        return list(answer.json()["messages"])

    return eventually(received, because=f"{group} receives messages of {topic}")


def _reset_peak(node: Broker) -> None:
    Path(f"/proc/{node.pid}/clear_refs").write_text("5")


def _peak_bytes(node: Broker) -> int:
    status = Path(f"/proc/{node.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


@contextmanager
def _bystander(node: Broker) -> Iterator[dict[str, float]]:
    host, port = node.http.removeprefix("http://").split(":")
    measured: dict[str, float] = {}
    with subprocess.Popen(
        [sys.executable, str(BYSTANDER), host, port, str(node.pid), "/v1/topics?prefix=none"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "measuring\n"
            yield measured
            process.stdin.close()
            told = process.stdout.readline()
            assert told, "the bystander was not answered"
            measured.update(json.loads(told))
        finally:
            process.kill()
