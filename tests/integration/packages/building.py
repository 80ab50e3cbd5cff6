"""Builds source archives and wheels of this tree as a PEP 517 front end does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
BUILD_SECONDS_MAX = 240
EPOCH = "1700000000"
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
_FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")

# The hook runs in a process of its own, in the folder of the project, as the standard says.
_HOOK = """
import sys
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])(sys.argv[2]))
"""


def repository(folder: Path) -> str:
    """A repository of the files that packages are made of, always the same; returns its commit."""
    copy_of_tree(folder)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    dates = {"GIT_AUTHOR_DATE": f"{EPOCH} +0000", "GIT_COMMITTER_DATE": f"{EPOCH} +0000"}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for command in ["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]:
        subprocess.run([*git, *command], cwd=folder, env=os.environ | dates | alone, check=True)
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def copy_of_tree(folder: Path) -> Path:
    """The files of the project that packages are made of, without anything that was built."""
    folder.mkdir()
    for name in (*_FILES, "SECURITY.md"):
        shutil.copy(REPOSITORY / name, folder / name)
    for name in ("src", "proto"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=_NOT_COPIED)
    return folder


def build(hook: str, tree: Path, target: Path, **variables: str) -> Path:
    """Run `build_wheel` or `build_sdist`; returns the file."""
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _HOOK, hook, str(target)],
        cwd=tree,
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH, **variables},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target / done.stdout.splitlines()[-1]


def unpacked(archive: Path, folder: Path) -> Path:
    """The one folder inside a source archive."""
    shutil.unpack_archive(archive, folder, filter="data")
    (inside,) = folder.iterdir()
    return inside
