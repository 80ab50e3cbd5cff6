"""Waiting for the outcome of releases that are under way.

A message in flight can no longer be cancelled, but nobody knows yet that it will appear: what was
written for its release may be lost with this node, or refused, and then it waits as before and can
be cancelled. Whoever asks meanwhile must not be told that it was released. He waits until it was,
or until it can be changed again.
"""

from __future__ import annotations

from functools import partial

from goqueue.delivery.schedules import Agenda
from goqueue.loop.clock import Clock, Handle
from goqueue.loop.promise import Promise
from goqueue.model.errors import RequestTimedOut

FLIGHT_MS_MAX = 5_000  # so long somebody waits, shorter than nodes wait for each other's answers


class Flights:
    """The messages of one log whose releases somebody waits for, as many as are in flight."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[int, tuple[Promise[None], Handle]] = {}

    def of(self, agenda: Agenda, number: int) -> Promise[None]:
        """Resolves when a message is in flight no longer, or when that takes too long."""
        wait = self._waits.get(number)
        if wait is None:
            late = self._clock.call_later(FLIGHT_MS_MAX, partial(self._end, number))
            wait = self._waits[number] = (Promise(), late)
            agenda.watch(number, partial(self._landed, number))
        return wait[0]

    def close(self) -> None:
        """Let nobody wait any longer, for the log has another owner."""
        for number in list(self._waits):
            self._landed(number)

    def _landed(self, number: int) -> None:
        # Those who wait change the agenda, which is in the middle of a change now.
        self._clock.call_soon(partial(self._end, number))

    def _end(self, number: int) -> None:
        wait = self._waits.pop(number, None)
        if wait is not None:
            promise, late = wait
            late.cancel()
            promise.resolve(None)


def under_way(schedule_id: str) -> RequestTimedOut:
    """What to say while nobody knows whether a message will be released."""
    return RequestTimedOut(
        f"The message scheduled as {schedule_id!r} is being released, which is not sure yet; retry."
    )
