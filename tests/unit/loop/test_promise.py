"""Promises and the coroutines that wait for them, without any event loop."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from goqueue.loop.promise import Cancellation, Promise, start
from goqueue.model.errors import RequestTimedOut

Outcome = tuple[Any, Exception | None]


class Caller:
    """Starts a coroutine and keeps what became of it."""

    def __init__(self, coroutine: Any) -> None:
        self.outcomes: list[Outcome] = []
        start(coroutine, lambda value, error: self.outcomes.append((value, error)))


async def add(left: Promise[int], right: Promise[int]) -> int:
    return await left + await right


def test_a_kept_promise_answers_at_once() -> None:
    promise: Promise[int] = Promise()
    promise.resolve(7)
    outcomes: list[Outcome] = []
    promise.then(lambda value, error: outcomes.append((value, error)))
    assert outcomes == [(7, None)]
    assert promise.is_done


def test_everybody_who_waits_is_told_in_the_order_they_came() -> None:
    promise: Promise[int] = Promise()
    told: list[str] = []
    for name in ("first", "second"):
        promise.then(lambda *_, name=name: told.append(name))
    assert not promise.is_done
    promise.resolve(7)
    assert told == ["first", "second"]


def test_a_promise_resolves_once() -> None:
    promise: Promise[int] = Promise()
    promise.resolve(1)
    with pytest.raises(AssertionError, match="resolves once"):
        promise.reject(RequestTimedOut("too late"))


def test_a_coroutine_that_never_waits_is_done_when_it_is_started() -> None:
    left, right = Promise[int](), Promise[int]()
    left.resolve(1)
    right.resolve(2)
    assert Caller(add(left, right)).outcomes == [(3, None)]


def test_a_coroutine_goes_on_as_its_promises_are_kept_in_whatever_order() -> None:
    left, right = Promise[int](), Promise[int]()
    caller = Caller(add(left, right))
    right.resolve(2)
    assert caller.outcomes == []
    left.resolve(1)
    assert caller.outcomes == [(3, None)]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_broken_promise_raises_in_the_coroutine(is_late: bool) -> None:
    promise: Promise[int] = Promise()
    error = RequestTimedOut("no answer")
    if not is_late:
        promise.reject(error)
    caller = Caller(add(promise, promise))
    if is_late:
        promise.reject(error)
    assert caller.outcomes == [(None, error)]


def test_a_coroutine_may_answer_an_error_itself() -> None:
    async def forgiving(promise: Promise[int]) -> int:
        try:
            return await promise
        except RequestTimedOut:
            return -1

    promise: Promise[int] = Promise()
    caller = Caller(forgiving(promise))
    promise.reject(RequestTimedOut("no answer"))
    assert caller.outcomes == [(-1, None)]


@pytest.mark.parametrize("is_late", [False, True])
def test_whatever_a_coroutine_raises_is_handed_on(is_late: bool) -> None:
    async def broken(promise: Promise[int]) -> None:
        await promise
        raise ZeroDivisionError

    promise: Promise[int] = Promise()
    if not is_late:
        promise.resolve(1)
    caller = Caller(broken(promise))
    if is_late:
        promise.resolve(1)
    ((_, error),) = caller.outcomes
    assert isinstance(error, ZeroDivisionError)


def test_many_promises_in_a_row_need_no_deep_stack() -> None:
    async def count(promises: list[Promise[int]]) -> int:
        return sum([await one for one in promises])

    promises = [Promise[int]() for _ in range(5_000)]
    for one in promises[1:]:
        one.resolve(1)
    caller = Caller(count(promises))
    promises[0].resolve(1)
    assert caller.outcomes == [(5_000, None)]


def test_settle_takes_a_value_or_an_error() -> None:
    kept, broken = Promise[int](), Promise[int]()
    error = RequestTimedOut("no answer")
    kept.settle(5, None)
    broken.settle(None, error)
    outcomes: list[Outcome] = []
    for one in (kept, broken):
        one.then(lambda value, error: outcomes.append((value, error)))
    assert outcomes == [(5, None), (None, error)]


def test_an_answer_is_free_as_soon_as_nobody_holds_it() -> None:
    class Answer:
        pass

    async def handle() -> Answer:
        await first
        return Answer()

    seen: list[weakref.ref[Answer]] = []

    def done(answer: Answer | None, _: Exception | None) -> None:
        assert answer is not None
        seen.append(weakref.ref(answer))

    first, promise = Promise[None](), Promise[Answer]()
    promise.then(done)
    gc.disable()
    try:
        start(handle(), promise.settle)
        del promise
        first.resolve(None)
        assert [one() for one in seen] == [None], "it waits for the garbage collector"
    finally:
        gc.enable()


def test_what_is_registered_after_a_cancellation_is_called_at_once() -> None:
    cancellation = Cancellation()
    called: list[str] = []
    cancellation.on_cancel(lambda: called.append("first"))
    cancellation.cancel()
    cancellation.cancel()
    cancellation.on_cancel(lambda: called.append("late"))
    assert called == ["first", "late"]
