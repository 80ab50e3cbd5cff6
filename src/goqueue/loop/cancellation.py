"""Lets a caller signal that it no longer waits for a result."""

from __future__ import annotations

from collections.abc import Callable


class Cancellation:
    """Passed to operations that may wait; cancelled when the client disconnects or the node
    stops.
    """

    __slots__ = ("_action", "is_cancelled")

    def __init__(self) -> None:
        self.is_cancelled = False
        self._action: Callable[[], None] | None = None

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Call `action` on cancellation, replacing any action set before."""
        self._action = action

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._action is not None:
            action, self._action = self._action, None
            action()
