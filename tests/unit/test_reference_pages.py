"""The pages of docs/reference/ and the manual pages say what the code says."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from goqueue.cli.main import COMMANDS
from tools.man_pages import pages
from tools.reference_pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "run make docs-reference"


def test_every_page_of_the_reference_is_generated() -> None:
    assert {page.name for page in FOLDER.glob("*.md")} >= set(PAGES)


def test_every_command_has_a_manual_page() -> None:
    made = pages()
    assert set(made) == {"goqueue.1", *(f"goqueue-{command}.1" for command in COMMANDS)}
    assert "\\-\\-replicas" in made["goqueue-topic.1"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff checks the pages")
def test_manual_pages_are_well_formed() -> None:
    for name, text in pages().items():
        command = ["groff", "-man", "-ww", "-Tutf8", "-z"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        assert not done.stderr, f"{name}: {done.stderr}"
