"""Why somebody is turned away, told once and not each time they try again."""

from __future__ import annotations

import logging

TOLD_MAX = 1_000  # reasons remembered; beyond it some are told once more


class Complaints:
    """What was told already, by whom it is about."""

    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._told: dict[tuple[str, str], None] = {}

    def tell(self, who: str, reason: str, level: int | None = None) -> None:
        if (who, reason) in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._told.pop(next(iter(self._told)))
        self._told[who, reason] = None
        self._log.log(self._level if level is None else level, "%s: %s", who, reason)

    def settle(self, who: str) -> None:
        """All is well with them now, so that the next trouble is news again."""
        for one in [one for one in self._told if one[0] == who]:
            del self._told[one]
