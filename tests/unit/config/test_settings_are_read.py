"""Every setting of a node is read by the code that it claims to steer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from goqueue import config
from goqueue.config import SECTIONS, SETTINGS

SOURCE = Path(config.__file__).parents[1]
# Listeners are opened in a loop over their names, with `getattr`.
_READ_BY_NAME = {
    *(f"listeners.{name}" for name in ("kafka", "http", "registry", "sqs", "internal")),
    *(f"listeners.{name}_advertised" for name in ("kafka", "http", "internal")),
}


class File:
    """The names that one source file uses, and the attributes that it reads."""

    def __init__(self, text: str, room: str = "") -> None:
        self.names = {room}  # the room of a section is handed that section
        self.attributes: set[str] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute):
                self.names.add(node.attr)
                if isinstance(node.ctx, ast.Load):
                    self.attributes.add(node.attr)
            elif isinstance(node, ast.Name):
                self.names.add(node.id)
            elif isinstance(node, ast.arg):
                self.names.add(node.arg)

    def reads(self, section: str, name: str) -> bool:
        """Whether it reads an attribute of this name, and has to do with the section at all."""
        knows = section in self.names or SECTIONS[section].__name__ in self.names
        return knows and name in self.attributes


@pytest.fixture(scope="module")
def files() -> list[File]:
    return [
        File(file.read_text(), file.relative_to(SOURCE).parts[0]) for file in SOURCE.rglob("*.py")
    ]


@pytest.mark.parametrize("path", sorted(set(SETTINGS) - _READ_BY_NAME))
def test_a_setting_is_read_by_somebody(path: str, files: list[File]) -> None:
    section, name = path.split(".")
    assert any(file.reads(section, name) for file in files), (
        f"{path} has no effect: nothing reads it. Use it or remove it."
    )


def test_what_defines_a_setting_does_not_count_as_reading_it() -> None:
    definition = File("class StorageSettings:\n    fsync: str = 'every'\n")
    assert not definition.reads("storage", "fsync")
    assert File("mode = settings.storage.fsync").reads("storage", "fsync")
    assert not File("mode = settings.topics.fsync").reads("storage", "fsync")
