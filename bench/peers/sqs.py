"""Servers that speak SQS, as the benchmark of that front end knows them."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Protocol

from bench.peers import PeerUnavailable

START_SECONDS_MAX = 60
POLL_SECONDS = 0.05


class SqsPeer(Protocol):
    """A running server that boto3 can be pointed to."""

    version: str

    @property
    def endpoint(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def wait_until_serving(
    name: str, endpoint: str, process: subprocess.Popen[bytes], output: Path
) -> None:
    """Return when the server answers a request, whatever it answers."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            text = output.read_text(errors="replace")
            raise PeerUnavailable(f"{name} ended while starting: {text[-1000:]}")
        if _serves(endpoint):
            return
        time.sleep(POLL_SECONDS)
    raise PeerUnavailable(f"{name} did not serve within {START_SECONDS_MAX} s")


def _serves(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"{endpoint}/?Action=ListQueues&Version=2012-11-05", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
