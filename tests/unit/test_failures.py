"""A run that is cut short has written down whatever failed before."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.failures import FailureLog


def report(
    name: str, outcome: Literal["passed", "failed", "skipped"], text: str = ""
) -> pytest.TestReport:
    return pytest.TestReport(name, ("", 0, ""), {}, outcome, text or None, "call")


def test_a_failed_seed_is_shown_and_written_with_its_traceback_as_soon_as_it_is_reported(
    tmp_path: Path,
) -> None:
    shown: list[str] = []
    path = tmp_path / "new" / "failures.txt"
    log = FailureLog(path, shown.append)
    log.pytest_runtest_logreport(report("test_cluster.py::test_all[7]", "failed", "assert 1 == 2"))
    assert shown == ["FAILED test_cluster.py::test_all[7]"]
    assert path.read_text() == "FAILED test_cluster.py::test_all[7]\nassert 1 == 2\n\n"


def test_a_later_failure_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "failures.txt"
    path.write_text("FAILED of an earlier run\n")
    FailureLog(path, lambda line: None).pytest_runtest_logreport(report("a[1]", "failed"))
    assert path.read_text().startswith("FAILED of an earlier run\nFAILED a[1]\n")


def test_passed_and_skipped_tests_are_not_recorded(tmp_path: Path) -> None:
    shown: list[str] = []
    log = FailureLog(tmp_path / "failures.txt", shown.append)
    log.pytest_runtest_logreport(report("a[1]", "passed"))
    log.pytest_runtest_logreport(report("a[2]", "skipped"))
    assert shown == []
    assert not (tmp_path / "failures.txt").exists()
