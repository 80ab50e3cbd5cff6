"""Build the console again and compare it with what is committed, byte for byte (needs Node)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "console"
BUILT = ROOT / "src" / "goqueue" / "console" / "static"


def differences(built: Path = BUILT) -> list[str]:
    """Return the names of the files that a new build would add, change or remove."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["node", "build.mjs", folder], cwd=SOURCES, check=True, stdout=sys.stderr)
        fresh, committed = _contents(Path(folder)), _contents(built)
    names = sorted(fresh.keys() | committed.keys())
    return [name for name in names if fresh.get(name) != committed.get(name)]


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


if __name__ == "__main__":
    if changed := differences():
        sys.exit("Not built from these sources, run `make console`: " + ", ".join(changed))
    print("The committed files of the console are what a new build gives.")
