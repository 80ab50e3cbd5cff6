"""What `make newcomer` measures, without the installation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import newcomer


def test_the_first_message_is_sent_and_read(tmp_path: Path) -> None:
    """A repository whose `make setup` does nothing, and whose `make serve` is the node of here."""
    source = tmp_path / "source"
    source.mkdir()
    serve = f"exec {sys.executable} -m goqueue serve $(ARGS)"
    (source / "Makefile").write_text(f"setup:\n\t@true\nserve:\n\t@{serve}\n")
    git = ["git", "-C", str(source), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    steps = newcomer.follow(source, folder)
    assert list(steps) == ["clone", "install", "start", "message"]
    assert newcomer.check(steps, limit=60) == sum(steps.values())


def test_a_way_that_takes_too_long_fails() -> None:
    with pytest.raises(newcomer.TooSlow, match=r"70\.0 s, more than 60 s"):
        newcomer.check({"install": 60.0, "start": 10.0}, limit=60)
