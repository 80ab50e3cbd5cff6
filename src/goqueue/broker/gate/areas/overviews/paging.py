"""The choice of a page from a long list, in slices of the event loop."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from goqueue.loop.clock import Clock
from goqueue.loop.turns import turn
from goqueue.model.tenants import NamePrefix

COMPARED_PER_SLICE = 2_000


Key = tuple[float, str]  # what a list is sorted by, and the name


class Paging(NamedTuple):
    """Which page of a list."""

    limit: int
    is_descending: bool = False
    after: tuple[float, NamePrefix] | None = None  # the last key of the page before

    def with_one_more(self) -> Paging:
        """Return the page with one more row, which tells whether another page follows."""
        return self._replace(limit=self.limit + 1)


class Chosen(NamedTuple):
    """The keys of a page in order, and how many there are on all pages."""

    keys: list[Key]
    total: int


async def choose(clock: Clock, keys: Iterable[Key | None], paging: Paging) -> Chosen:
    """Return the keys of a page; None stands for what is not in the list."""
    page: list[Key] = []
    total = 0
    source = iter(keys)
    while some := list(islice(source, COMPARED_PER_SLICE)):
        listed = [one for one in some if one is not None]
        total += len(listed)
        page = first_of([*page, *listed], paging)
        if len(some) == COMPARED_PER_SLICE:
            await turn(clock)
    return Chosen(page, total)


def first_of(keys: Iterable[Key], paging: Paging) -> list[Key]:
    """Return the first keys after the page before."""
    after, pick = paging.after, heapq.nsmallest
    if paging.is_descending:
        pick = heapq.nlargest
        later = (one for one in keys if after is None or one < after)
    else:
        later = (one for one in keys if after is None or one > after)
    return pick(paging.limit, later)
