"""Translators of operations, compiled from annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from goqueue.broker.gate.operation import OPERATIONS
from goqueue.broker.gate.translation import OperationNames
from goqueue.broker.gate.views import TopicView
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, UnknownTopic
from goqueue.model.session import Session
from goqueue.model.tenants import GroupName, SubjectName, Text, TopicName
from goqueue.tenancy.namespaces import ForeignName, Namespace

ACME = Namespace("acme", lambda text: text)


class Inner(NamedTuple):
    topic: TopicName
    note: Text


class Outer(msgspec.Struct, frozen=True):
    inner: Inner
    groups: dict[GroupName, int | GoQueueError] = {}


@dataclass(frozen=True)
class Flat:
    subject: SubjectName | None


class Tree(msgspec.Struct):
    name: TopicName
    leaves: list[Tree] = []


def names(method: Any) -> OperationNames:
    return OperationNames(method)


def test_arguments_are_translated_however_deep() -> None:
    async def method(
        self: object,
        session: Session,
        *,
        topic: TopicName,
        outer: Outer | None = None,
        pairs: Sequence[tuple[TopicName, Sequence[int]]] = (),
        flat: Flat | None = None,
        note: Text = "",
    ) -> None: ...

    arguments = {
        "topic": "orders",
        "outer": Outer(Inner("a", "a"), {"g": 1}),
        "pairs": [("b", [0, 1])],
        "flat": Flat("s"),
        "note": "orders",
    }
    inside = names(method).inward(ACME, arguments)
    assert inside == {
        "topic": "~acme~orders",
        "outer": Outer(Inner("~acme~a", "a"), {"~acme~g": 1}),
        "pairs": [("~acme~b", [0, 1])],
        "flat": Flat(":.~acme~:s"),
        "note": "orders",
    }
    assert names(method).inward(ACME, {"topic": "x", "outer": None}) == {
        "topic": "~acme~x",
        "outer": None,
    }


def test_what_belongs_to_others_is_left_out_of_lists_and_mappings() -> None:
    def method(self: object, session: Session) -> Promise[Mapping[TopicName, list[TopicName]]]:
        raise NotImplementedError

    found = {"~acme~a": ["~acme~x", "~other~y", "z"], "~other~b": ["~acme~x"]}
    assert names(method).outward(ACME, found) == {"a": ["x"]}


def test_a_single_foreign_name_is_an_error() -> None:
    async def method(self: object, session: Session) -> Inner: ...  # type: ignore[empty-body]

    with pytest.raises(ForeignName):
        names(method).outward(ACME, Inner("~other~a", ""))


def test_errors_in_results_have_plain_names() -> None:
    async def method(self: object, session: Session) -> list[GoQueueError | None]: ...  # type: ignore[empty-body]

    [error, none] = names(method).outward(ACME, [UnknownTopic("~acme~a"), None])
    assert str(error) == str(UnknownTopic("a"))
    assert none is None


def test_a_type_may_contain_itself() -> None:
    async def method(self: object, session: Session) -> Tree: ...  # type: ignore[empty-body]

    shown = names(method).outward(ACME, Tree("~acme~a", [Tree("~acme~b"), Tree("~other~c")]))
    assert shown == Tree("a", [Tree("b")])


def test_a_live_topic_gets_an_adapter() -> None:
    class Live:
        name, id, is_internal, partition_count = "~acme~orders", b"id", False, 3
        own_settings: Mapping[str, str] = {}

    def method(self: object, session: Session) -> TopicView | None: ...

    shown = names(method).outward(ACME, Live())
    assert (shown.name, shown.id, shown.partition_count) == ("orders", b"id", 3)
    assert names(method).outward(ACME, None) is None


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_every_text_says_which_name_it_is(name: str) -> None:
    """Annotate it: `TopicName`, `GroupName` …, or `Text` if no tenant has it as a name."""
    assert not OperationNames(OPERATIONS[name].perform).undeclared
