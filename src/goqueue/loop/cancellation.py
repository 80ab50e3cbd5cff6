"""How a caller tells that it does not wait for an answer any more."""

from __future__ import annotations

from collections.abc import Callable


class Cancellation:
    """Passed to what may wait; cancelled when the client has gone or the node stops."""

    __slots__ = ("_action", "is_cancelled")

    def __init__(self) -> None:
        self.is_cancelled = False
        self._action: Callable[[], None] | None = None

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Have `action` called at cancellation, instead of any that was given before."""
        self._action = action

    def cancel(self) -> None:
        self.is_cancelled = True
        if self._action is not None:
            action, self._action = self._action, None
            action()
