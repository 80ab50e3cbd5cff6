"""Notifies requests that wait on behalf of a member when its group begins to rebalance.

A member learns which partitions to release from the response to a heartbeat. If a long poll for
messages delayed that response until its wait was over, the whole group would wait with it.
"""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """One waiting request; `is_rung` is set once the group has begun another rebalance."""

    __slots__ = ("begun", "is_rung", "ring")

    def __init__(self, begun: int) -> None:
        self.begun = begun
        self.is_rung = False
        self.ring: Callable[[], None] | None = None


class RebalanceWatch:
    """All waiting requests, by group; bounded by the number of requests."""

    def __init__(self, begun: Callable[[str], int]) -> None:
        """`begun` returns the number of rebalances a group has begun, in this node's state."""
        self._begun = begun
        self._watches: dict[str, dict[Watch, None]] = {}

    def add(self, group_id: str) -> Watch:
        """Watch a group until `remove`."""
        watch = Watch(self._begun(group_id))
        self._watches.setdefault(group_id, {})[watch] = None
        return watch

    def remove(self, group_id: str, watch: Watch) -> None:
        watches = self._watches[group_id]
        del watches[watch]
        if not watches:
            del self._watches[group_id]

    def look(self, group_id: str) -> None:
        """Notify the watches of a group, if the record just written began a rebalance."""
        watches = self._watches.get(group_id)
        if watches is None:
            return
        begun = self._begun(group_id)
        for watch in list(watches):
            if begun != watch.begun and not watch.is_rung:
                watch.is_rung = True
                if watch.ring is not None:
                    watch.ring()
