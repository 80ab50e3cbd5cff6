"""Logs why peers are refused, once per reason and not at each retry."""

from __future__ import annotations

import logging
from collections.abc import Callable

TOLD_MAX = 1_000  # remembered reasons; beyond it some are logged again
LINES_MAX = 20  # lines per period below, if a clock is given; further ones are only counted
LINES_MS = 60_000


class Complaints:
    """The reasons already logged, by peer."""

    def __init__(
        self,
        log: logging.Logger,
        level: int = logging.WARNING,
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """With a clock the rate of log lines is limited, for peers from many addresses."""
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
        """Forget the reason of a peer that is accepted again, so that the next one is logged."""
        for one in [one for one in self._told if one[0] == who]:
            del self._told[one]
