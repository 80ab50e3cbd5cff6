"""The package of errors exports all of them, by name and by code."""

from __future__ import annotations

import ast
from pathlib import Path

from goqueue.model import errors
from goqueue.model.errors import ERRORS_BY_CODE, GoQueueError, NotLeader, UnknownTopic

FOLDER = Path(errors.__file__).parent
MODULES = [file for file in FOLDER.glob("*.py") if file.stem not in ("__init__", "refusals")]


def defined() -> list[str]:
    """The classes in the modules of the package."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in MODULES]
    return [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]


def test_the_package_exports_every_class_of_its_modules() -> None:
    assert sorted(errors.__all__) == sorted([*defined(), "ERRORS_BY_CODE"])


def test_an_error_is_found_by_its_code() -> None:
    exported = [getattr(errors, name) for name in defined()]
    kinds = {kind for kind in exported if issubclass(kind, GoQueueError)}
    assert set(ERRORS_BY_CODE.values()) == kinds
    assert ERRORS_BY_CODE["not_leader"] is NotLeader


def test_errors_of_other_packages_are_not_among_them() -> None:
    assert {kind.__module__.rpartition(".")[0] for kind in ERRORS_BY_CODE.values()} == {
        "goqueue.model.errors"
    }


def test_an_error_can_have_a_text_that_was_written_elsewhere() -> None:
    error = UnknownTopic.with_text("Said by another node.")
    assert isinstance(error, UnknownTopic)
    assert str(error) == "Said by another node."
