"""Why somebody is turned away, told once and not each time they try again."""

from __future__ import annotations

import logging
from collections.abc import Callable

TOLD_MAX = 1_000  # reasons remembered; beyond it some are told once more
LINES_MAX = 20  # within the time below, where a clock is given; the others are only counted
LINES_MS = 60_000


class Complaints:
    """What was told already, by whom it is about."""

    def __init__(
        self,
        log: logging.Logger,
        level: int = logging.WARNING,
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """With a clock the number of lines is bounded, for those who come from many addresses."""
        self._log = log
        self._level = level
        self._now_ms = now_ms
        self._told: dict[tuple[str, str], None] = {}
        self._began_ms = 0
        self._lines = 0
        self._left_out = 0

    def tell(self, who: str, reason: str, level: int | None = None) -> None:
        if (who, reason) in self._told:
            return
        if not self._has_room():
            self._left_out += 1
            return
        if len(self._told) >= TOLD_MAX:
            self._told.pop(next(iter(self._told)))
        self._told[who, reason] = None
        more = f" ({self._left_out} more like it were left out)" if self._left_out else ""
        self._left_out = 0
        self._log.log(self._level if level is None else level, "%s: %s%s", who, reason, more)

    def _has_room(self) -> bool:
        if self._now_ms is None:
            return True
        now_ms = self._now_ms()
        if now_ms - self._began_ms >= LINES_MS:
            self._began_ms, self._lines = now_ms, 0
        self._lines += 1
        return self._lines <= LINES_MAX

    def settle(self, who: str) -> None:
        """All is well with them now, so that the next trouble is news again."""
        for one in [one for one in self._told if one[0] == who]:
            del self._told[one]
