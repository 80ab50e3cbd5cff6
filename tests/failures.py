"""Record each failed test when it fails, so that a long run that is cut short loses none.

Pytest shows failures at its end, and under xdist its progress does not name tests. With `--failures
FILE` every failed test, whose id contains its seed, is printed at once, and appended to FILE with
its traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


class FailureLog:
    """Appends failures to a file and shows their names; a plugin of the process that reports."""

    def __init__(self, path: Path, show: Callable[[str], None]) -> None:
        self._path = path
        self._show = show

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        line = f"FAILED {report.nodeid}"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n{report.longreprtext}\n\n")
        self._show(line)


def record_failures(config: pytest.Config) -> None:
    """Start the log that `--failures` requests, but not in workers, whose reports come here too."""
    path = config.getoption("--failures")
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if path is None or terminal is None or hasattr(config, "workerinput"):
        return

    def show(line: str) -> None:
        terminal.write_line(f"\n{line}", flush=True, red=True)

    config.pluginmanager.register(FailureLog(path, show))
