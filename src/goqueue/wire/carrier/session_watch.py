"""Ends a long poll or a stream with the session that it was begun in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from goqueue.model.session import Session

if TYPE_CHECKING:
    from goqueue.broker.gate.authentication import Authentication
    from goqueue.loop.clock import Clock, Handle

EXPIRY_CHECK_MS = 3_600_000  # at least so often, because the wall time may be set


class SessionWatch:
    """Calls `ended` once, when a session expires or its user or key may no longer be used."""

    def __init__(
        self,
        clock: Clock,
        authentication: Authentication,
        session: Session,
        ended: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._expires_ms = session.expires_ms
        self._ended = ended
        self._timer: Handle | None = None
        self._watch = authentication.watch(session, ended)
        if session.expires_ms:
            self._await_expiry()

    def cancel(self) -> None:
        self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _await_expiry(self) -> None:
        left_ms = self._expires_ms - self._clock.wall_ms()
        if left_ms <= 0:
            # In a turn of its own, because the caller may be about to keep this watch.
            self._timer = self._clock.call_later(0, self._ended)
        else:
            self._timer = self._clock.call_later(min(left_ms, EXPIRY_CHECK_MS), self._await_expiry)
