"""What becomes of the response to a call between nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from goqueue.loop.peers import Answered, read_answer
from goqueue.loop.promise import Promise
from goqueue.model.batch import read_header
from goqueue.model.errors import NotController, RequestTimedOut, UpgradeInProgress

Outcome = tuple[Any, Exception | None]


def outcome_of(head: bytes, kind: Any = int, **options: Any) -> Outcome:
    called: Promise[Answered] = Promise()
    decode = msgspec.msgpack.Decoder(kind).decode
    outcomes: list[Outcome] = []
    read = read_answer(called, lambda answer: decode(answer.head), **options)
    read.then(lambda value, error: outcomes.append((value, error)))
    assert not outcomes
    called.resolve(Answered(head, memoryview(b"")))
    [outcome] = outcomes
    return outcome


def test_a_response_is_read() -> None:
    assert outcome_of(b"\x07") == (7, None)


@pytest.mark.parametrize("head", [b"", b"\xa1x", b"\xa1\xff", b"\x91" * 5_000])
@pytest.mark.parametrize("kind", [int, str | list[int], Any])
def test_whoever_waits_learns_that_a_response_cannot_be_read(head: bytes, kind: Any) -> None:
    if (head, kind) in ((b"\xa1x", Any), (b"\xa1x", str | list[int])):
        assert outcome_of(head, kind) == ("x", None)
        return
    value, error = outcome_of(head, kind)
    assert value is None
    assert isinstance(error, RequestTimedOut), "it is unknown whether the call was carried out"
    assert "another release" in str(error)


def test_the_caller_may_say_what_it_means() -> None:
    _, error = outcome_of(b"", unreadable=UpgradeInProgress)
    assert isinstance(error, UpgradeInProgress)
    assert "truncated" in str(error)


def test_an_answer_that_refers_to_what_it_does_not_have_cannot_be_read() -> None:
    called: Promise[Answered] = Promise()
    outcomes: list[Outcome] = []
    read_answer(called, lambda answer: [7][answer.head[0]]).then(
        lambda value, error: outcomes.append((value, error))
    )
    called.resolve(Answered(b"\x01", memoryview(b"")))
    [(_, error)] = outcomes
    assert isinstance(error, RequestTimedOut)


def test_damage_found_in_a_response_is_not_damage_of_what_the_other_node_has() -> None:
    called: Promise[Answered] = Promise()
    outcomes: list[Outcome] = []
    read_answer(called, lambda answer: read_header(answer.head)).then(
        lambda value, error: outcomes.append((value, error))
    )
    called.resolve(Answered(bytes(10), memoryview(b"")))
    [(_, error)] = outcomes
    assert isinstance(error, RequestTimedOut)


def test_a_refusal_is_passed_on() -> None:
    called: Promise[Answered] = Promise()
    refusal = NotController(3)
    outcomes: list[Outcome] = []
    read_answer(called, lambda answer: 7).then(lambda value, error: outcomes.append((value, error)))
    called.reject(refusal)
    assert outcomes == [(None, refusal)]
