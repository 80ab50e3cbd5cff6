"""The one way these tests wait: for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 45.0  # generous: a slow machine must not fail a test, only a wrong broker
POLL_SECONDS = 0.02


def eventually(
    condition: Callable[[], T], *, because: str = "", within: float = DEADLINE_SECONDS
) -> T:
    """Ask until the answer is truthy, and return it; fail with the last answer at the deadline."""
    deadline = time.monotonic() + within
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            claim = because or getattr(condition, "__name__", "condition")
            raise AssertionError(f"not true within {within:.0f} s: {claim}; last answer {answer!r}")
        time.sleep(POLL_SECONDS)
