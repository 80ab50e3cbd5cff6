"""One at a time, in the order they came, whatever becomes of those before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.loop.promise import Promise, start
from goqueue.loop.turns import Turns
from goqueue.model.errors import InvalidRequest, RequestTimedOut


class Soon:
    """A scheduler of which only `call_soon` is asked."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_soon(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Line:
    def __init__(self, waiting_max: int = 10) -> None:
        self.soon = Soon()
        self.turns = Turns(self.soon, waiting_max=waiting_max)  # type: ignore[arg-type]
        self.told: list[str] = []
        self.gates: dict[str, Promise[None]] = {}

    def join(self, name: str) -> Promise[str]:
        outcome: Promise[str] = Promise()
        self.gates[name] = Promise()

        async def work() -> str:
            self.told.append(f"{name} begins")
            await self.gates[name]
            self.told.append(f"{name} ends")
            return name

        start(self.turns.run(work), outcome.settle)
        return outcome

    def let(self, name: str, error: Exception | None = None) -> None:
        self.gates[name].settle(None, error)
        self.soon.run()


def test_the_next_begins_when_the_one_before_has_ended() -> None:
    line = Line()
    outcomes = [line.join(name) for name in "abc"]
    assert line.told == ["a begins"]
    line.let("a")
    line.let("b", InvalidRequest("no"))
    line.let("c")
    assert line.told == ["a begins", "a ends", "b begins", "c begins", "c ends"]
    assert all(one.is_done for one in outcomes)
    again = line.join("d")
    line.let("d")
    assert again.is_done


def test_a_line_that_is_full_turns_away() -> None:
    line = Line(waiting_max=1)
    line.join("a")
    line.join("b")
    turned_away = line.join("c")
    errors: list[Exception | None] = []
    turned_away.then(lambda _, error: errors.append(error))
    with pytest.raises(RequestTimedOut):
        raise errors[0]  # type: ignore[misc]


def test_a_long_line_is_no_deep_stack() -> None:
    line = Line(waiting_max=5000)
    outcomes = [line.join(str(number)) for number in range(3000)]
    for gate in line.gates.values():
        gate.settle(None, InvalidRequest("no")) if not gate.is_done else None
    line.soon.run()
    assert all(one.is_done for one in outcomes)
