"""Confirmation that a node's metadata is current, before it answers with it.

A node that is disconnected, or was suspended, may still consider itself the leader of what others
lead by now. It cannot commit writes, but its answers to reads would be stale. So before it returns
something that must not be stale, it catches up with the decisions of the cluster. This depends on
no clock: a disconnected node does not answer.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, RequestTimedOut

CONFIRM_MS_MAX = 5_000  # then the caller should retry, maybe on another node
RETRY_MS = 50


class Confirming:
    """Batches confirmations: one request at a time, shared by all callers since the last one."""

    def __init__(self, clock: Clock, catch_up: Callable[[], Promise[None]]) -> None:
        """`catch_up` tries to apply everything that was decided before it was called."""
        self._clock = clock
        self._catch_up = catch_up
        self._next: Promise[None] | None = None
        self._is_asking = False

    def confirm(self) -> Promise[None]:
        """Resolve when this node has applied all that was decided when this was called."""
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
                    RequestTimedOut("This node cannot reach the controller of its cluster; retry.")
                )

        timer = self._clock.call_later(CONFIRM_MS_MAX, give_up)
        confirmed.then(lambda _, error: timer.cancel())
