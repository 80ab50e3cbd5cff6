"""A peer that is one process with one port on loopback."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.peers import END_WITH_US, PeerUnavailable, free_ports
from bench.processes import end_process

START_SECONDS_MAX = 60
POLL_SECONDS = 0.005


class ChildPeer:
    """Starts the process, waits until it serves, and ends it together with its data."""

    def __init__(self, name: str, home: Path) -> None:
        self._name = name
        self._home = home
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    def close(self) -> None:
        """End the server and remove its data."""
        if self._process is not None:
            end_process(self._process, signal.SIGKILL)
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)

    def _make_home(self) -> None:
        """A folder and a port of its own."""
        self._home.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)

    def _launch(self, command: Sequence[str], serves: Callable[[], bool]) -> None:
        output = self._home / "out"
        with output.open("ab") as told:
            self._process = process = subprocess.Popen(
                [*END_WITH_US, *command],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not serves():
            if process.poll() is not None:
                text = output.read_text(errors="replace")
                raise PeerUnavailable(f"{self._name} ended while starting: {text[-1000:]}")
            if time.monotonic() > deadline:
                raise PeerUnavailable(f"{self._name} did not serve within {START_SECONDS_MAX} s")
            time.sleep(POLL_SECONDS)
