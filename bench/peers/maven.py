"""Jars of peers, which Maven fetches once into `.cache/<name>/<version>`."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.peers import PeerUnavailable

CACHE = Path(__file__).parents[2] / ".cache"
SECONDS_MAX = 600


def fetch_jars(name: str, version: str, pom: str) -> Path:
    """Return the folder with a peer's jars and all they need, asking Maven the first time."""
    folder = CACHE / name
    jars = folder / version
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(f"Maven fetches {name}: `mvn` is not on the path.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        Path(work, "pom.xml").write_text(pom)
        result = subprocess.run(
            [
                *(maven, "--batch-mode", "--quiet", "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", "-DoutputDirectory=jars"),
            ],
            check=False,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        if result.returncode != 0:
            raise PeerUnavailable(
                f"Maven could not fetch {name} {version}:\n{result.stdout[-2000:]}"
            )
        # Two runs may install at once: the rename decides, and both folders hold the same jars.
        with contextlib.suppress(OSError):
            Path(work, "jars").rename(jars)
    return jars
