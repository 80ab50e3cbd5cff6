"""moto's server: SQS in memory, for tests of programs that use AWS. It comes with the test lock."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.peers import END_WITH_US, PeerUnavailable, free_ports
from bench.peers.sqs import wait_until_serving
from bench.processes import end_process


class Moto:
    """One running server."""

    def __init__(self, home: Path) -> None:
        try:
            self.version = version("moto")
        except PackageNotFoundError:
            raise PeerUnavailable("moto is not installed; `make setup-test` does that") from None
        self._home = home
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it serves."""
        self._home.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        with (self._home / "out").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(*END_WITH_US, sys.executable, "-m", "moto.server"),
                    *("--host", "127.0.0.1", "--port", str(self._port)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                start_new_session=True,
            )
        wait_until_serving("moto", self.endpoint, self._process, self._home / "out")

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            end_process(self._process, signal.SIGKILL)
            self._process = None
        shutil.rmtree(self._home, ignore_errors=True)
