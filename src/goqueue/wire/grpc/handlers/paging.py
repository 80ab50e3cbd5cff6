"""Pages of lists that are sorted by name; a page token is the last name of a page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from goqueue.wire.carrier.problems import InvalidField

T = TypeVar("T")

PAGE_SIZE_MAX = 1000


def page_size_of(
    wanted: int, default: int = PAGE_SIZE_MAX, most: int = PAGE_SIZE_MAX, field: str = "page_size"
) -> int:
    """Return the number of entries of a page; 0 is the default."""
    if not 0 <= wanted <= most:
        raise InvalidField(f"{field} is at most {most}.", field=field)
    return wanted or default


def messages_max_of(wanted: int, default: int = PAGE_SIZE_MAX, most: int = PAGE_SIZE_MAX) -> int:
    """Return the number of messages of a response; 0 is the default."""
    return page_size_of(wanted, default, most, "messages_max")


def page_of(
    found: Sequence[T], name_of: Callable[[T], str], page_size: int, token: str
) -> tuple[Sequence[T], str]:
    """Return the entries after a token, and the token of the next page."""
    size = page_size_of(page_size)
    first = bisect_right(found, token, key=name_of) if token else 0
    page = found[first : first + size]
    is_last = first + size >= len(found)
    return page, "" if is_last else name_of(page[-1])
