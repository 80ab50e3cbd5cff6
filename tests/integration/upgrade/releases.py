"""The release before this one, installed from the repository into a folder of its own.

It is the newest tag `v*` before this commit, or else the commit in the file `baseline`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".cache" / "upgrade"
BASELINE = Path(__file__).with_name("baseline")
INSTALL_SECONDS_MAX = 180


class NoEarlierRelease(Exception):
    """The repository does not have the release before this one, as a shallow clone does not."""


def release_before() -> str:
    """Return the commit of the release before this one."""
    here = _git("rev-parse", "HEAD^{commit}")
    for tag in _git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").split():
        commit = _git("rev-parse", f"{tag}^{{commit}}")
        if commit != here:
            return commit
    pinned = BASELINE.read_text().strip()
    try:
        return _git("rev-parse", "--verify", "--quiet", f"{pinned}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise NoEarlierRelease(
            f"This repository does not contain commit {pinned}, the release to upgrade from. "
            "Fetch the whole history: git fetch --unshallow."
        ) from error


def installed(commit: str) -> Path:
    """Return the folder in which a commit is installed, without its compiled parts."""
    folder = CACHE / commit
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(commit, folder)
    return folder


def _install(commit: str, folder: Path) -> None:
    sources, new = CACHE / f"{commit}.sources", CACHE / f"{commit}.new"
    for leftover in (sources, new):
        shutil.rmtree(leftover, ignore_errors=True)
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(sources, filter="data")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(new), str(sources)]
    subprocess.run(
        command,
        check=True,
        env={**os.environ, "GOQUEUE_PURE": "1"},
        timeout=INSTALL_SECONDS_MAX,
    )
    shutil.rmtree(sources)
    new.rename(folder)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()
