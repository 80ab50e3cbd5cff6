"""How long to wait before trying again: longer each time, and never in step with others."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_DOUBLINGS_MAX = 30


@dataclass(slots=True)
class Backoff:
    """Waits that double from `ms_min` to `ms_max`, each shortened by up to a half at random."""

    ms_min: int
    ms_max: int
    random: Random
    attempts: int = 0

    def next_ms(self) -> float:
        """The wait before the next attempt."""
        full = min(self.ms_max, self.ms_min << min(self.attempts, _DOUBLINGS_MAX))
        self.attempts += 1
        return full * (0.5 + self.random.random() / 2)
