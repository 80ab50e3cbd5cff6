"""Lets those who wait on behalf of a member know that its group begins to rebalance.

A member hears what to give up with the answer to a heartbeat. Whoever has one waiting for
messages meanwhile would hear of it when the wait is over, and everybody else in the group would
wait with it.
"""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """One who waits; `is_rung` once the group has begun another rebalance."""

    __slots__ = ("begun", "is_rung", "ring")

    def __init__(self, begun: int) -> None:
        self.begun = begun
        self.is_rung = False
        self.ring: Callable[[], None] | None = None


class RebalanceWatch:
    """All who wait, by group. There are no more of them than there are requests."""

    def __init__(self, begun: Callable[[str], int]) -> None:
        """`begun` counts the rebalances that a group has begun, as far as this node knows."""
        self._begun = begun
        self._watches: dict[str, dict[Watch, None]] = {}

    def add(self, group_id: str) -> Watch:
        """Watch a group from now on, until `remove`."""
        watch = Watch(self._begun(group_id))
        self._watches.setdefault(group_id, {})[watch] = None
        return watch

    def remove(self, group_id: str, watch: Watch) -> None:
        watches = self._watches[group_id]
        del watches[watch]
        if not watches:
            del self._watches[group_id]

    def look(self, group_id: str) -> None:
        """Something has been written about a group."""
        watches = self._watches.get(group_id)
        if watches is None:
            return
        begun = self._begun(group_id)
        for watch in list(watches):
            if begun != watch.begun and not watch.is_rung:
                watch.is_rung = True
                if watch.ring is not None:
                    watch.ring()
