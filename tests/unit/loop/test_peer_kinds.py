"""Kinds of messages between nodes: each is sent by somebody, and received by somebody."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from goqueue.loop.peers import PeerKind

SOURCE = Path(__file__).parents[3] / "src" / "goqueue"
RECEIVING = {"serve", "listen"}
RESERVED = {8, 9, 12}  # an earlier version sent them


def _kinds_in(call: ast.Call) -> Iterator[str]:
    for one in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == PeerKind.__name__:
            yield one.attr


@cache
def _used() -> tuple[set[str], set[str]]:
    """The kinds that are sent, and those that are received."""
    sent: set[str] = set()
    received: set[str] = set()
    texts = (file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    for text in (one for one in texts if PeerKind.__name__ in one):
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call):
                name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                (received if name in RECEIVING else sent).update(_kinds_in(call))
    return sent, received


@pytest.mark.parametrize("kind", PeerKind, ids=lambda one: one.name)
def test_a_kind_has_a_sender_and_a_receiver(kind: PeerKind) -> None:
    sent, received = _used()
    assert kind.name in sent, "nobody sends it"
    assert kind.name in received, "nobody serves it or listens for it"


def test_numbers_of_earlier_kinds_are_not_used_again() -> None:
    assert not RESERVED & set(PeerKind)
