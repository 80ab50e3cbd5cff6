"""The table of operations: whole, unambiguous, and as its page shows it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from goqueue.broker.gate.operation import (
    OPERATIONS,
    Area,
    Operation,
    area_name,
    cluster,
    operation,
    words_of,
)
from goqueue.broker.gate.portable import Portable
from goqueue.model.access import Action
from goqueue.model.session import Session
from tests.unit.broker.node import Node
from tools.operations_page import page

ROOT = Path(__file__).parents[4]
AREAS = {
    area_name(one.__name__): one
    for one in Area.__subclasses__()
    if one.__module__.startswith("goqueue.")
}
EVERY = pytest.mark.parametrize("declared", OPERATIONS.values(), ids=list(OPERATIONS))
ROUTED = pytest.mark.parametrize(
    "declared",
    [one for one in OPERATIONS.values() if one.is_routed],
    ids=[name for name, one in OPERATIONS.items() if one.is_routed],
)


class Names(Mapping[str, Any]):
    """Arguments of any value; it notes which are read."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return MagicMock()

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a resource or an owner names the arguments that it needs")

    def __len__(self) -> int:
        raise AssertionError("a resource or an owner names the arguments that it needs")


def arguments_of(declared: Operation) -> set[str]:
    session, *arguments = list(inspect.signature(declared.perform).parameters.values())[1:]
    assert session.name == "session"
    assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in arguments), declared.name
    return {one.name for one in arguments}


def names_read(ask: Any, *before: object) -> set[str]:
    """The arguments that a function of resources or owners reads."""
    names = Names()
    try:
        found = ask(*before, names)
        if inspect.iscoroutine(found):
            found.close()
        elif isinstance(found, Iterator):
            list(found)
    except Exception:
        pass  # The values make no sense; only the names matter.
    return names.read


def test_the_gate_has_every_area_under_its_name() -> None:
    gate = Node().broker.gate
    found = {name: type(one) for name, one in vars(gate).items() if isinstance(one, Area)}
    assert found == AREAS


def test_operations_are_the_public_methods_of_areas() -> None:
    methods = [
        f"{area}.{name}"
        for area, kind in AREAS.items()
        for name, method in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    ]
    assert sorted(methods) == sorted(OPERATIONS)


def test_a_name_is_declared_once() -> None:
    async def count(area: Area, session: Session) -> int:
        raise AssertionError

    count.__qualname__ = "SchedulesArea.count"
    with pytest.raises(AssertionError, match="is declared twice"):
        operation(Action.READ, cluster)(count)


@EVERY
def test_arguments_have_names_and_types(declared: Operation) -> None:
    hints = inspect.get_annotations(declared.perform, eval_str=False)
    assert arguments_of(declared) | {"session", "return"} == set(hints)
    assert hints["session"] in (Session, "Session")


@EVERY
def test_resources_and_owners_are_named_by_arguments_that_exist(declared: Operation) -> None:
    read = names_read(declared.resources)
    if declared.owner is not None:
        read |= names_read(declared.owner, MagicMock())
    assert read <= arguments_of(declared)


@EVERY
def test_an_operation_says_what_it_does_and_touches(declared: Operation) -> None:
    assert declared.perform.__doc__, f"{declared.name} needs a docstring"
    words = [words_of(declared.resources)]
    if declared.owner is not None:
        words.append(words_of(declared.owner))
    assert not any("<" in one for one in words), "a lambda has no name to show"


@ROUTED
def test_a_routed_operation_can_travel(declared: Operation) -> None:
    portable = Portable(declared.perform)
    empty = {name: None for name in arguments_of(declared) if name != "cancellation"}
    assert portable.encode_arguments(empty)


@EVERY
def test_what_answers_at_once_is_answered_here(declared: Operation) -> None:
    if declared.is_immediate:
        assert not declared.is_routed
        assert declared.is_reading


def test_the_page_of_operations_is_current() -> None:
    written = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs-operations`"
