"""The wheel of a release: what people install holds everything that a broker serves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
PACKAGE = "goqueue/console/static/"
DATA = ("goqueue/py.typed", "goqueue/wire/http/docs.html")


def test_the_wheel_contains_the_console(tmp_path: Path) -> None:
    """Built in a copy, so that nothing is written into the work tree; no compiler is needed."""
    project = tmp_path / "project"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", project / "src", ignore=ignored)
    for name in PARTS:
        shutil.copy(ROOT / name, project)
    build = "import setuptools.build_meta, sys; setuptools.build_meta.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)],
        cwd=project,
        env={**os.environ, "CC": "false"},  # the compiled modules are optional
        check=True,
        capture_output=True,
        timeout=110,
    )
    (wheel,) = tmp_path.glob("*.whl")
    static = ROOT / "src" / PACKAGE
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        assert names.issuperset(DATA)
        packed = {name for name in names if name.startswith(PACKAGE)}
        assert packed == {f"{PACKAGE}{file.name}" for file in static.iterdir()}
        for name in packed:
            assert opened.read(name) == (ROOT / "src" / name).read_bytes(), name
