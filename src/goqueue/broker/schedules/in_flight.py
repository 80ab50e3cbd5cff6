"""Waiting for the outcome of releases in progress.

A message in flight can no longer be cancelled, but its release is not certain: what was written for
it may be lost with this node, or refused, and then the message waits as before and can be
cancelled. Until then, a caller must not be answered that it was released. The call waits until the
message is released, or can be changed again.
"""

from __future__ import annotations

from functools import partial

from goqueue.delivery.schedules import Agenda
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise
from goqueue.model.errors import RequestTimedOut

FLIGHT_MS_MAX = 5_000  # the longest wait, shorter than the timeout of calls between nodes


class Flights:
    """The in-flight messages of one log whose outcome callers await."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[int, tuple[Promise[None], Handle]] = {}

    def of(self, agenda: Agenda, number: int) -> Promise[None]:
        """Resolves when a message is no longer in flight, or on timeout."""
        wait = self._waits.get(number)
        if wait is None:
            late = self._clock.call_later(FLIGHT_MS_MAX, partial(self._end, number))
            wait = self._waits[number] = (Promise(), late)
            agenda.watch(number, partial(self._landed, number))
        return wait[0]

    def close(self) -> None:
        """End all waits, because the log has another owner."""
        for number in list(self._waits):
            self._landed(number)

    def _landed(self, number: int) -> None:
        # Waiting callers change the agenda, which is in the middle of a change now.
        self._clock.call_soon(partial(self._end, number))

    def _end(self, number: int) -> None:
        wait = self._waits.pop(number, None)
        if wait is not None:
            promise, late = wait
            late.cancel()
            promise.resolve(None)


def under_way(schedule_id: str) -> RequestTimedOut:
    """The error while the release of a message is in progress."""
    return RequestTimedOut(
        f"The message scheduled as {schedule_id!r} is being released; its outcome is not certain "
        "yet; retry."
    )
