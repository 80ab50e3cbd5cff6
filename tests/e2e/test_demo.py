"""`make demo` as a user runs it: all that it promises is there, and afterwards only the report."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.processes import processes_with
from tests.integration.process import END_WITH_US
from tests.integration.waiting import eventually

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 900  # two minutes on two free cores
CPU_SECONDS_MAX = 240.0  # two minutes of two cores, whatever else the machine does
# The demo says what it waits for after 4 s; the rest is for a machine that is busy.
SILENT_SECONDS_MAX = 10.0

# In this order. Each is there only if the step before it did what it should.
PRINTED = [
    "GoQueue is ready",
    "Stored 10,000 messages",
    "^9000$",
    "Total lag: 1,001",
    '"value":"welcome"',
    '"failed":0',
    '"schedule_id":',
    r"a reminder +normal +1",
    "Acknowledged 1 message.",
    "Rejected 1 message.",
    "value: to nowhere",
    "reason: no such address",
    "source: mails:0:2",
    "1 message moved back.",
    "Acknowledged 1 message.",
    "aborted .*: 0 shipments",
    "committed at attempt 2: 1 shipment, 1 bill, 0 baskets left",
    "The schema is version 1 of subject readings-value",
    "Stored 1 message.",
    "does not obey its schema at .*celsius",
    "kill -9",
    "GoQueue is ready",
    "Stored 100,000 messages",
    "^110001$",
    "Total lag: 101,001",
    "records +110001",
    "verified +yes",
    "copied +110001",
    "verified +110001",
    "no such address +1",
    "^50000$",
    "That was it, in .* minutes. What to look at:",
    "report.html",
]


@pytest.mark.slow
@pytest.mark.timeout(RUN_SECONDS_MAX + 60)
def test_the_demo_shows_what_it_promises_and_leaves_only_its_report(tmp_path: Path) -> None:
    folder, report = tmp_path / "temporary", tmp_path / "report"
    folder.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TMPDIR": str(folder),
        "DEMO_PAUSE": "0",
        "DEMO_REPORT": str(report),
    }
    before = cpu_seconds()
    code, lines = run([*END_WITH_US, str(ROOT / "examples" / "demo.sh")], environment, tmp_path)
    text = "".join(line.text for line in lines)
    assert code == 0, text[-6000:]
    check_order(text)
    checksums = re.findall(r"^checksum +([0-9a-f]{16})$", text, flags=re.MULTILINE)
    assert len(checksums) == 2
    assert checksums[0] == checksums[1], "the replay is what was archived"
    assert "Traceback" not in text
    assert "WARN" not in text
    silences = [(after.at - line.at, line.text, after.text) for line, after in pairwise(lines)]
    assert max(silences)[0] < SILENT_SECONDS_MAX, sorted(silences)[-3:]
    assert cpu_seconds() - before < CPU_SECONDS_MAX

    page = (report / "report.html").read_text()
    for shown in ("110,001", "orders-again", "no such address", "billing", "<svg"):
        assert shown in page
    assert [one.name for one in report.iterdir()] == ["report.html"]
    assert not list(folder.glob("goqueue-demo.*"))
    eventually(
        lambda: not processes_with({"TMPDIR": str(folder)}),
        because="all that the demo started has ended",
    )


class Line(NamedTuple):
    at: float
    text: str


def run(command: list[str], environment: dict[str, str], folder: Path) -> tuple[int, list[Line]]:
    """Run a command, and note when it printed each line."""
    lines = [Line(time.monotonic(), "")]
    with subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        overdue = threading.Timer(RUN_SECONDS_MAX, process.kill)
        overdue.start()
        try:
            lines += [Line(time.monotonic(), text) for text in process.stdout]
            return process.wait(), lines
        finally:
            overdue.cancel()
            process.kill()


def cpu_seconds() -> float:
    """What processes took that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_order(text: str) -> None:
    """Each expected line stands behind the one before it."""
    at = 0
    for expected in PRINTED:
        found = re.compile(expected, flags=re.MULTILINE).search(text, at)
        assert found is not None, f"no {expected!r} behind:\n{text[max(at - 2000, 0) : at]}"
        at = found.end()
