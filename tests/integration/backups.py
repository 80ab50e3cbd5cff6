"""`goqueue backup` as a command, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RUN_SECONDS_MAX = 120


def command(*words: object, http: str = "") -> list[str]:
    place = ["--http", http.removeprefix("http://")] if http else []
    return [sys.executable, "-m", "goqueue", "backup", *map(str, words), *place, "-o", "json"]


def run(*words: object, http: str = "", code: int = 0) -> Any:
    """Run a command to its end; return what it printed, or its error."""
    done = subprocess.run(
        command(*words, http=http),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else done.stderr


def objects(folder: Path) -> dict[str, int]:
    """The objects of a backup folder, with the times of their last change."""
    return {
        str(one.relative_to(folder)): one.stat().st_mtime_ns
        for one in (folder / "data").rglob("*.batches")
    }
