"""examples/archive_and_backfill.py runs as it is, and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.process import Broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "archive_and_backfill.py"
RUN_SECONDS_MAX = 500  # Spark starts slowly on a busy machine

pytestmark = pytest.mark.timeout(600)


def test_the_history_is_archived_read_and_replayed(tmp_path: Path) -> None:
    node = Broker(tmp_path, {})
    try:
        node.start()
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), node.bootstrap, str(tmp_path / "archive")],
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    finally:
        node.close()
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "archived 300 orders",
        "archived 100 more",
        "chair: 120 orders, 9000",
        "lamp: 300 orders, 12000",
        "backfilled 400 orders, 400 verified",
        "called again: 0 copied, 400 are there",
    ]
