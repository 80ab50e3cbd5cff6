"""The alert rules, judged by the tools of Prometheus."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.monitoring.alerts import ALERTS
from tools.monitoring.programs import ROOT, find

RULES = ROOT / "deploy" / "prometheus"


@pytest.fixture(scope="session")
def promtool() -> Path:
    found = find("promtool")
    assert found is not None, "run `make prometheus`, or install Prometheus"
    return found


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_prometheus_accepts_the_rules_and_the_configuration(promtool: Path) -> None:
    done = run(promtool, "check", "config", RULES / "prometheus.yml")
    assert done.returncode == 0, done.stderr + done.stdout
    assert f"{sum(map(len, ALERTS.values()))} rules found" in done.stdout


@pytest.mark.parametrize("file", sorted(RULES.glob("tests/*.yml")), ids=lambda file: file.stem)
def test_each_alert_fires_and_is_silent_when_it_should(promtool: Path, file: Path) -> None:
    done = run(promtool, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_expectation_is_noticed(promtool: Path, tmp_path: Path) -> None:
    """The tests are run: one that expects silence where the alert fires fails."""
    text = (RULES / "tests" / "nodes.yml").read_text()
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(text.replace("0x10", "1x10").replace("../", f"{RULES}/"))
    assert run(promtool, "test", "rules", wrong).returncode != 0
