"""What the operating system says about a process, and how one is started and ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
STOP_SECONDS_MAX = 30


class LoadFailed(Exception):
    """A load generator did not finish. The text is what it said."""


def run_load(command: Sequence[str], seconds_max: float) -> dict[str, Any]:
    """Run a load generator to its end and return the JSON it printed."""
    process = start_load(command)
    return finish_load(process, seconds_max)


def start_load(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a load generator; `finish_load` must follow."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )


def finish_load(process: subprocess.Popen[str], seconds_max: float) -> dict[str, Any]:
    """Wait for a load generator and return the JSON it printed."""
    try:
        out, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"no end within {seconds_max:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode != 0:
        raise LoadFailed(_last_line(errors) or f"exit code {process.returncode}")
    result: dict[str, Any] = json.loads(out)
    return result


def end_process(process: subprocess.Popen[Any], how: signal.Signals) -> None:
    """Send a signal and wait; kill what does not listen."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children so far, to the nanosecond where possible."""
    total = 0
    for task in _tasks(pid):
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    total = 0
    for each in _family(pid):
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{each}/statm").read_text().split()[1])
            total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def _tasks(pid: int) -> Iterator[Path]:
    for each in _family(pid):
        with contextlib.suppress(OSError):
            yield from Path(f"/proc/{each}/task").iterdir()


def _family(pid: int) -> list[int]:
    family = [pid]
    for each in family:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                family += [int(child) for child in (task / "children").read_text().split()]
    return family


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
