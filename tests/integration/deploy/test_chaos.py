"""deploy/chaos: the script on three processes; what needs Docker or Kubernetes is only parsed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

REPOSITORY = Path(__file__).parents[3]
SCRIPT = REPOSITORY / "deploy" / "chaos" / "chaos.sh"
RUN_SECONDS_MAX = 200


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
        env=os.environ | variables,
    )


@pytest.mark.timeout(300)
def test_nodes_that_stand_still_lose_no_message(cluster: Cluster, tmp_path: Path) -> None:
    command = tmp_path / "goqueue"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m goqueue "$@"\n')
    command.chmod(0o755)
    pids = [str(node.pid) for node in cluster.nodes.values()]
    done = run(
        "pids",
        "12",
        PIDS=" ".join(pids),
        GOQUEUE=str(command),
        GOQUEUE_BOOTSTRAP=cluster.bootstrap,
        FAULT_SECONDS="3",
        REST_SECONDS="1",
        RATE="20",
        SEED="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    paused = re.findall(r"pause (\d+)", done.stdout)
    assert paused
    assert set(paused) <= set(pids)
    assert re.search(r"received +240 ", done.stdout), done.stdout
    assert f"{len(paused)} faults; the load ended with 0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "variables", "complaint"),
    [
        ([], {}, "usage"),
        (["docker", "10"], {}, "unknown target docker"),
        (["pids", "10"], {"PIDS": "1", "FAULTS": "cut"}, "pids has no fault cut"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_broken(
    arguments: list[str], variables: dict[str, str], complaint: str
) -> None:
    done = run(*arguments, **variables)
    assert done.returncode != 0
    assert complaint in done.stderr


@pytest.mark.parametrize("target", ["compose", "helm", "pids"])
def test_every_fault_of_a_target_begins_and_ends(target: str) -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    (faults,) = re.findall(rf'^faults_{target}="([^"]+)"', text, re.MULTILINE)
    for when in ("begin", "end"):
        (body,) = re.findall(rf"^{when}_{target}\(\) \{{(.*?)\}}$", text, re.MULTILINE | re.DOTALL)
        if target != "pids":  # which has one fault
            assert set(faults.split()) <= set(re.findall(r"\b(kill|stop|pause|cut)\b", body))
