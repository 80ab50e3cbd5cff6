"""Processes that were started with certain variables, however indirectly: children inherit them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path


def processes_with(variables: Mapping[str, str]) -> list[int]:
    """Those that run now."""
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or belongs to somebody else
        if wanted <= set(environment):
            found.append(int(folder.name))
    return found


def kill_processes_with(variables: Mapping[str, str]) -> None:
    """End them as a loss of power would."""
    for pid in processes_with(variables):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was faster
