"""Work that concerns all groups of a coordinator, a few of them at a time.

A coordinator may have tens of thousands of groups, and whatever looks at all of them at once holds
up every request to the node meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from goqueue.groups.group import CoordinatorContext, Group
from goqueue.groups.limits import GROUPS_PER_SLICE, SLICE_MS
from goqueue.groups.timers import Timer


class Sweep:
    """Visits groups, the next few at each deadline of a timer."""

    def __init__(self, context: CoordinatorContext, visit: Callable[[Group, int], None]) -> None:
        """`visit` is called with each group and the time; the group may be deleted by then."""
        self._timers = context.timers
        self._journal = context.journal
        self._visit = visit
        self._left: dict[Group, None] = {}
        self._timer: Timer | None = None

    @property
    def is_running(self) -> bool:
        return bool(self._left)

    def start(self, groups: Iterable[Group], now_ms: int) -> None:
        """Visit the first of these groups now, and the others later; each once."""
        self._left.update(dict.fromkeys(groups))
        if self._timer is None:
            self._go_on(now_ms)

    def stop(self) -> None:
        self._left.clear()
        self._end_timer()

    def _go_on(self, now_ms: int) -> None:
        # What is written together is committed together, and that takes time as well.
        room = max(0, GROUPS_PER_SLICE - self._journal.in_flight)
        for group in _first(self._left, room):
            self._visit(group, now_ms)
        if not self._left:
            self._end_timer()
            return
        if self._timer is None:
            self._timer = Timer(self._go_on)
        self._timers.arm(self._timer, now_ms + SLICE_MS)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.end()
            self._timer = None


def _first(groups: dict[Group, None], count: int) -> list[Group]:
    """Remove and return the first groups."""
    found = list(islice(groups, count))
    for group in found:
        del groups[group]
    return found
