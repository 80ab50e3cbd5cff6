"""How much work something is, counted so that nothing else on the machine changes it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def steps_of(work: Callable[[], T]) -> tuple[T, int]:
    """What comes of some work, and how many lines of Python it ran, each time counted."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return work(), count
    finally:
        sys.settrace(before)
