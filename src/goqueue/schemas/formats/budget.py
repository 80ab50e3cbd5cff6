"""A bound on the work that comparing two schemas of a client may cause, and on its output."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.schemas.formats.interface import MESSAGES_MAX

# Types compared with each other. Ordinary schemas need some hundred steps; malicious ones can need
# the product of their sizes, or more.
STEPS_MAX = 100_000
DEPTH_MAX = 150  # types inside types, through references; far more than in practice


class _Exhausted(Exception):
    """The comparison was abandoned."""


class Budget:
    """Counts the steps of one comparison."""

    __slots__ = ("_left",)

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self._left = steps

    def spend(self, depth: int) -> None:
        """Take one step at that depth, or abandon the comparison."""
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX:
            raise _Exhausted


def compared(compare: Callable[[Budget], list[str]]) -> list[str]:
    """What `compare` finds, without duplicates and up to a bound; or that it was abandoned.

    An abandoned comparison counts as incompatible: what was not checked is not guaranteed.
    """
    try:
        found = list(dict.fromkeys(compare(Budget())))
    except _Exhausted:
        return ["TOO_COMPLEX: the schemas are too large or too deeply nested to be compared"]
    if len(found) > MESSAGES_MAX:
        left = len(found) - MESSAGES_MAX
        return [*found[:MESSAGES_MAX], f"and {left} more"]
    return found
