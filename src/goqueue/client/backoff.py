"""Exponential backoff with jitter."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_DOUBLINGS_MAX = 30


@dataclass(slots=True)
class Backoff:
    """Waits that double from `ms_min` to `ms_max`, each reduced at random by up to a half."""

    ms_min: int
    ms_max: int
    random: Random
    attempts: int = 0

    def next_ms(self) -> float:
        """The wait before the next attempt."""
        full = min(self.ms_max, self.ms_min << min(self.attempts, _DOUBLINGS_MAX))
        self.attempts += 1
        return full * (0.5 + self.random.random() / 2)
