"""Pages of lists: where the next one begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from goqueue.wire.carrier.problems import InvalidField

T = TypeVar("T")

_DIGITS_MAX = 9


class Slice(NamedTuple):
    """Where the next page begins, and how many items are on all pages."""

    cursor: str  # empty at the end
    total: int


def slice_of(items: Sequence[T], limit: int | None, cursor: str) -> tuple[Sequence[T], Slice]:
    """Return a page; without a limit, everything from the cursor on."""
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _DIGITS_MAX):
        raise InvalidField("The cursor is not one of a response.", field="cursor")
    first = int(cursor or 0)
    last = len(items) if limit is None else first + limit
    return items[first:last], Slice(str(last) if last < len(items) else "", len(items))


def cursor_after(names: Sequence[str], *, is_last: bool) -> str:
    """Return the cursor of a list by name, of which these names are a page."""
    return "" if is_last or not names else names[-1]
