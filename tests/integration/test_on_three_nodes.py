"""Every front end does on three nodes what it does on one.

`make test-cluster` repeats all tests of the front ends against a cluster. Those marked `on_cluster`
are a cross-section of them, and are repeated here, against one cluster that they share.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUN_SECONDS_MAX = 240  # a tenth of that where nothing else runs


@pytest.mark.timeout(RUN_SECONDS_MAX + 30)
@pytest.mark.single_node("starts the cluster by itself")
def test_a_cross_section_of_every_front_end_passes_on_three_nodes(tmp_path: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    # To collect the others would take as long as all that is run.
    files = [one for one in HERE.rglob("test_*.py") if "mark.on_cluster" in one.read_text()]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *map(str, sorted(files))),
            *("-q", "-n", "0", "-m", "on_cluster", "-p", "no:cacheprovider"),
            f"--basetemp={tmp_path / 'nodes'}",
        ],
        cwd=HERE.parents[1],
        env=environment | {"GOQUEUE_TEST_PEER": "cluster"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
