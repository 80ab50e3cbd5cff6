"""docs/walkthrough.md does what it says, from the top to the bottom, and prints what it shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.process import Broker
from tests.pages import ROOT, cells, is_like

PAGE = ROOT / "docs" / "walkthrough.md"
COMMAND_SECONDS_MAX = 240
TEST_SECONDS_MAX = 600  # half a minute on two free cores


@pytest.mark.slow
@pytest.mark.timeout(TEST_SECONDS_MAX)
def test_the_walkthrough_prints_what_it_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Broker(tmp_path / "walk", {})
    node.directory.mkdir()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GOQUEUE_BOOTSTRAP": node.bootstrap,
        "GOQUEUE_HTTP": node.http,
        "GOQUEUE_CLI_CONFIG": str(tmp_path / "contexts.yaml"),
    }
    names: dict[str, Any] = {}
    try:
        node.start()
        for cell in cells(PAGE.read_text(encoding="utf-8")):
            if cell.language == "python":
                printed = run_python(cell.code.replace("127.0.0.1:9092", node.bootstrap), names)
            else:
                printed = run_command(cell.code, environment)
            assert is_like(printed, cell.printed), f"{cell.code}\nprinted\n{printed}"
    finally:
        node.close()
    assert names["spark"] is spark
    page = (tmp_path / "walk" / "report.html").read_text()
    for shown in ("5,500 records", "100 records", "after-the-accident", "billing"):
        assert shown in page


def test_the_targets_that_the_page_names_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"^make ([\w-]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    assert all(f"\n{target}:" in makefile for target in named)


def run_python(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, str(PAGE), "exec"), names)
    return output.getvalue()


def run_command(command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
