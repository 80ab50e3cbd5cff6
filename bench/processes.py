"""What the operating system says about a process, and how one is started and ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

REPOSITORY = Path(__file__).parents[1]
STOP_SECONDS_MAX = 30
SAMPLE_SECONDS = 0.05


class LoadFailed(Exception):
    """A load generator did not finish. The text is what it said."""


class Load:
    """A load generator: its process, what it prints, and what it took once it has ended."""

    def __init__(self, command: Sequence[str]) -> None:
        self.what = _mode(command)
        self.cpu_s = 0.0
        self.peak_bytes = 0
        # Memory and not pipes, so that one wait is for the process alone and learns what it used.
        self._out, self._errors = os.memfd_create("out"), os.memfd_create("errors")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._errors,
            text=True,
            cwd=REPOSITORY,
        )

    def sample(self) -> None:
        """Look at its memory, which nothing tells once it has ended."""
        if self._process.returncode is None:
            self.peak_bytes = max(self.peak_bytes, peak_bytes(self._process.pid))

    def wait(self, seconds_max: float, sample: Callable[[], None]) -> tuple[int | None, str, str]:
        """Its exit code, or None if it had to be killed; and what it printed on both channels."""
        code: int | None = None
        try:
            if self._has_ended_within(seconds_max, sample):
                code = self._reap()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                self._reap()
        return code, _take_text(self._out), _take_text(self._errors)

    def _has_ended_within(self, seconds_max: float, sample: Callable[[], None]) -> bool:
        deadline = time.monotonic() + seconds_max
        descriptor = os.pidfd_open(self._process.pid)
        try:
            while (left := deadline - time.monotonic()) > 0:
                sample()
                if select.select([descriptor], [], [], min(left, SAMPLE_SECONDS))[0]:
                    return True
            return False
        finally:
            os.close(descriptor)

    def _reap(self) -> int:
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        # With its children that it waited for. The memory it tells is that of whoever started it.
        self.cpu_s = usage.ru_utime + usage.ru_stime
        return self._process.returncode


class LoadWatcher(Protocol):
    """Told of each load generator while a run is measured."""

    def load_started(self, load: Load) -> None: ...

    def load_ended(self, load: Load, result: dict[str, Any]) -> None: ...


_watcher: ContextVar[LoadWatcher | None] = ContextVar("load watcher", default=None)
_running: list[Load] = []


@contextlib.contextmanager
def watching_loads(watcher: LoadWatcher) -> Iterator[None]:
    """Tell `watcher` of every load generator until this ends."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def run_load(command: Sequence[str], seconds_max: float) -> dict[str, Any]:
    """Run a load generator to its end and return the JSON it printed."""
    return finish_load(start_load(command), seconds_max)


def start_load(command: Sequence[str]) -> Load:
    """Start a load generator; `finish_load` must follow."""
    load = Load(command)
    _running.append(load)
    if watcher := _watcher.get():
        watcher.load_started(load)
    return load


def finish_load(load: Load, seconds_max: float) -> dict[str, Any]:
    """Wait for a load generator and return the JSON it printed."""
    result: dict[str, Any] = {}
    try:
        code, out, errors = load.wait(seconds_max, _sample_all)
        if code is None:
            raise LoadFailed(f"no end within {seconds_max:.0f} s")
        if code != 0:
            raise LoadFailed(_last_line(errors) or f"exit code {code}")
        result = json.loads(out)
        return result
    finally:
        _running.remove(load)
        if watcher := _watcher.get():
            watcher.load_ended(load, result)


def _sample_all() -> None:
    for load in _running:
        load.sample()


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
    """Processor time of a process and its children so far, threads that have ended included."""
    total = 0.0
    for each in _family(pid):
        with contextlib.suppress(OSError):
            # The clock of another process, as clock_getcpuclockid(3) makes it.
            total += time.clock_gettime((~each << 3) | 2)
    return total


def peak_bytes(pid: int) -> int:
    """The most that a process and its children have had resident, summed up."""
    return sum(_status_kib(each, "VmHWM:") for each in _family(pid)) * 1024


def own_peak_bytes() -> int:
    """The most that this process alone has had resident."""
    return _status_kib(os.getpid(), "VmHWM:") * 1024


def forget_peak(pid: int) -> None:
    """Let `peak_bytes` begin anew."""
    for each in _family(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{each}/clear_refs").write_text("5")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    total = 0
    for each in _family(pid):
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{each}/statm").read_text().split()[1])
            total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def _status_kib(pid: int, field: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    return 0


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are still there."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _family(pid: int) -> list[int]:
    family = [pid]
    for each in family:
        family += children(each)
    return family


def _take_text(descriptor: int) -> str:
    """All that was written to a file, which is then closed."""
    with open(descriptor) as file:
        file.seek(0)
        return file.read()


def _mode(command: Sequence[str]) -> str:
    """What a load generator is to do: the first plain word after its program."""
    return next((word for word in command[1:] if word.isalpha() and word.islower()), "")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
