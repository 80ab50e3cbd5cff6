"""A hold on commits: for a moment no transaction of a coordinator is decided to be committed."""

from __future__ import annotations

from goqueue.model.errors import CoordinatorLoading

HOLD_MS_MAX = 30_000


class CommitHold:
    """Refuses commits while a backup takes its cut, for a bounded time.

    A transaction is then either committed in all of its partitions before the cut, or in none. A
    refused producer retries. The hold belongs to one coordinator on one node: it ends with it.
    """

    __slots__ = ("_name", "_until_ms")

    def __init__(self) -> None:
        self._name = ""
        self._until_ms = 0

    def is_active(self, now_ms: int) -> bool:
        return bool(self._name) and now_ms < self._until_ms

    def begin(self, name: str, *, hold_ms: int, now_ms: int) -> None:
        """Begin a hold, or confirm the one of this name; raise if there is another one."""
        if self.is_active(now_ms):
            if name != self._name:
                raise CoordinatorLoading("Another backup is taking its cut; retry.")
            return
        self._name = name
        self._until_ms = now_ms + min(hold_ms, HOLD_MS_MAX)

    def end(self, name: str, *, now_ms: int) -> bool:
        """End the hold of this name; return whether it has lasted until now."""
        if name != self._name:
            return False
        has_lasted = self.is_active(now_ms)
        self._name = ""
        return has_lasted

    def check(self, now_ms: int) -> None:
        """Raise while commits are held."""
        if self.is_active(now_ms):
            raise CoordinatorLoading("A backup is taking its cut; retry the commit.")
