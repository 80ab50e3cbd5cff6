"""A bound on how much work two schemas of a client may cause, and on how much is told about it."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.schemas.formats.interface import MESSAGES_MAX

# Types compared with each other. Honest schemas need some hundred steps; two schemas made for the
# purpose need as many as the product of their sizes, or more.
STEPS_MAX = 100_000
DEPTH_MAX = 150  # types inside types, through references; far above what people write


class _Exhausted(Exception):
    """The comparison was given up."""


class Budget:
    """Counts the steps of one comparison."""

    __slots__ = ("_left",)

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self._left = steps

    def spend(self, depth: int) -> None:
        """Take one step at that depth, or give up the comparison."""
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX:
            raise _Exhausted


def compared(compare: Callable[[Budget], list[str]]) -> list[str]:
    """What `compare` finds, without repetitions and cut to a bound; or that it had to give up.

    A comparison that is given up counts as incompatible: what nobody checked is not promised.
    """
    try:
        found = list(dict.fromkeys(compare(Budget())))
    except _Exhausted:
        return ["TOO_COMPLEX: the schemas are too large or too deeply nested to be compared"]
    if len(found) > MESSAGES_MAX:
        left = len(found) - MESSAGES_MAX
        return [*found[:MESSAGES_MAX], f"and {left} more"]
    return found
