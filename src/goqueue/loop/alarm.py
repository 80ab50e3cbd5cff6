"""Calls a state machine when its next deadline has passed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from goqueue.loop.clock import Clock, Handle

RETRY_MS = 1000

_log = logging.getLogger(__name__)


class Alarm:
    """One timer for all deadlines of a coordinator; `set` it after every call."""

    def __init__(
        self,
        clock: Clock,
        *,
        name: str,
        next_deadline_ms: Callable[[], int | None],
        ring: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._name = name
        self._next_deadline_ms = next_deadline_ms
        self._ring = ring
        self._timer: Handle | None = None
        self._timer_at: int | None = None

    def set(self) -> None:
        """Set the timer for the next deadline."""
        deadline = self._next_deadline_ms()
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None:
            delay = max(0, deadline - self._clock.now_ms())
            self._timer = self._clock.call_later(delay, self._fire)

    def stop(self) -> None:
        """Cancel the timer for good."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_at = None

    def _fire(self) -> None:
        self._timer, self._timer_at = None, None
        try:
            self._ring(self._clock.now_ms())
        except Exception:
            # One failure must not stop the timers of all the others.
            _log.exception("a deadline in %s failed", self._name)
            self._timer_at = self._clock.now_ms() + RETRY_MS
            self._timer = self._clock.call_later(RETRY_MS, self._fire)
