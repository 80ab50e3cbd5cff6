"""A result that may come later, its cancellation, and the driver of coroutines that await it.

The broker runs under a real event loop and under a simulated one. It therefore waits on its own
promises, which need no loop at all: settling a promise runs the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

Done = Callable[[T | None, Exception | None], None]


class Promise(Generic[T]):
    """A value or an error, now or later. It can be awaited by a coroutine under `start`."""

    __slots__ = ("_error", "_is_done", "_value", "_waiting")

    def __init__(self) -> None:
        self._is_done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._waiting: list[Done[T]] = []

    @property
    def is_done(self) -> bool:
        return self._is_done

    def resolve(self, value: T) -> None:
        self.settle(value, None)

    def reject(self, error: Exception) -> None:
        self.settle(None, error)

    def settle(self, value: T | None, error: Exception | None) -> None:
        assert not self._is_done, "a promise resolves once"
        self._is_done, self._value, self._error = True, value, error
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(value, error)

    def then(self, done: Done[T]) -> None:
        if self._is_done:
            done(self._value, self._error)
        else:
            self._waiting.append(done)

    def abandon(self) -> None:
        """Drop all callbacks: nobody waits for the result any more."""
        self._waiting.clear()

    def __await__(self) -> Generator[Promise[Any], None, T]:
        if not self._is_done:
            yield self
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


class Cancellation:
    """Passed to operations that may wait; cancelled when the client disconnects or the node
    stops.
    """

    __slots__ = ("_action", "is_cancelled")

    def __init__(self) -> None:
        self.is_cancelled = False
        self._action: Callable[[], None] | None = None

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Call `action` on cancellation, replacing any action set before; at once if cancelled."""
        if self.is_cancelled:
            action()
        else:
            self._action = action

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._action is not None:
            action, self._action = self._action, None
            action()


def start(coroutine: Coroutine[Promise[Any], None, T], done: Done[T]) -> None:
    """Run a coroutine; resume it as each awaited promise resolves; then call `done`."""
    _step(coroutine, done)


def promised(coroutine: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    """Run a coroutine as `start` does; what it returns or raises settles the promise."""
    promise: Promise[T] = Promise()
    _step(coroutine, promise.settle)
    return promise


def _step(
    coroutine: Coroutine[Promise[Any], None, T],
    done: Done[T],
    _value: Any = None,
    _error: Exception | None = None,
) -> None:
    # A separate function, because one inside `start` would refer to itself: what it references,
    # above all the result, would then stay alive until the garbage collector runs.
    try:
        waiting_for = coroutine.send(None)
    except StopIteration as stop:
        done(stop.value, None)
    except Exception as error:
        done(None, error)
    else:
        waiting_for.then(partial(_step, coroutine, done))
