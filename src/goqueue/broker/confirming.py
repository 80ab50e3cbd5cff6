"""Whether a node still is what it believes to be.

A node that is cut off, or was asleep, goes on believing that it leads what others lead by now. What
it is asked to write it cannot commit, but what it is asked to tell it would tell wrongly. So before
it tells something that must not be old, it learns what the cluster has decided until then. No clock
has a part in this: a node that hears nothing says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, RequestTimedOut

CONFIRM_MS_MAX = 5_000  # then whoever asked had better ask again, perhaps another node
RETRY_MS = 50


class Confirming:
    """Asks once for all who have come since the last asking; one question is out at a time."""

    def __init__(self, clock: Clock, catch_up: Callable[[], Promise[None]]) -> None:
        """`catch_up` tries to learn all that was decided before it was called."""
        self._clock = clock
        self._catch_up = catch_up
        self._next: Promise[None] | None = None
        self._is_asking = False

    def confirm(self) -> Promise[None]:
        """Resolves when this node knows all that the cluster had decided when this was called."""
        confirmed = self._next
        if confirmed is None:
            confirmed = self._next = Promise()
            self._limit(confirmed)
            if not self._is_asking:
                self._ask_next()
        return confirmed

    def _ask_next(self) -> None:
        confirmed, self._next = self._next, None
        self._is_asking = confirmed is not None
        if confirmed is not None:
            self._ask(confirmed)

    def _ask(self, confirmed: Promise[None]) -> None:
        def told(_: None, error: Exception | None) -> None:
            is_passing = isinstance(error, GoQueueError) and error.retryable
            if is_passing and not confirmed.is_done:
                self._clock.call_later(RETRY_MS, lambda: self._ask(confirmed))
                return
            self._ask_next()
            if not confirmed.is_done:
                confirmed.settle(None, error)

        self._catch_up().then(told)

    def _limit(self, confirmed: Promise[None]) -> None:
        def give_up() -> None:
            if not confirmed.is_done:
                confirmed.reject(
                    RequestTimedOut("This node cannot learn what its cluster has decided; retry.")
                )

        timer = self._clock.call_later(CONFIRM_MS_MAX, give_up)
        confirmed.then(lambda _, error: timer.cancel())
