"""`make demo` as a user runs it: all that it promises is there, and afterwards only the report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import processes_with
from tests.integration.process import END_WITH_US
from tests.integration.waiting import eventually

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 900  # two minutes on two free cores

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
    done = subprocess.run(
        [*END_WITH_US, str(ROOT / "examples" / "demo.sh")],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    check_order(done.stdout)
    checksums = re.findall(r"^checksum +([0-9a-f]{16})$", done.stdout, flags=re.MULTILINE)
    assert len(checksums) == 2
    assert checksums[0] == checksums[1], "the replay is what was archived"
    assert "Traceback" not in done.stdout
    assert "WARN" not in done.stdout

    page = (report / "report.html").read_text()
    for shown in ("110,001", "orders-again", "no such address", "billing", "<svg"):
        assert shown in page
    assert [one.name for one in report.iterdir()] == ["report.html"]
    assert not list(folder.glob("goqueue-demo.*"))
    eventually(
        lambda: not processes_with({"TMPDIR": str(folder)}),
        because="all that the demo started has ended",
    )


def check_order(text: str) -> None:
    """Each expected line stands behind the one before it."""
    at = 0
    for expected in PRINTED:
        found = re.compile(expected, flags=re.MULTILINE).search(text, at)
        assert found is not None, f"no {expected!r} behind:\n{text[max(at - 2000, 0) : at]}"
        at = found.end()
