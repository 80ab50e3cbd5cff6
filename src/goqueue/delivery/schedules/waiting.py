"""A compact table of the waiting messages and their topics, by number.

Numbers are offsets of a log, so they are added in long runs and removed in any order. The table is
divided into pages of 65,536 numbers. A page with many entries is a plain array, one with few has
sorted positions; a million messages cost a few megabytes, whether they are close together or not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import repeat

PAGE_BITS = 16
PAGE_NUMBERS = 1 << PAGE_BITS
SPARSE_MAX = 8192  # with more entries a page becomes a plain array
DENSE_MIN = 2048  # with fewer it becomes sorted positions again
RELEASED_PAGES_MAX = 64  # kept: the newest four million numbers

_MASK = PAGE_NUMBERS - 1
_BITMAP_BYTES = PAGE_NUMBERS // 8

WaitingState = list[tuple[int, bytes, bytes]]  # page, positions (none if dense), topics


class _SparsePage:
    __slots__ = ("positions", "topics")

    def __init__(self) -> None:
        self.positions = array("H")
        self.topics = array("I")

    def __len__(self) -> int:
        return len(self.positions)

    def get(self, position: int) -> int:
        index = bisect_left(self.positions, position)
        if index < len(self.positions) and self.positions[index] == position:
            return self.topics[index]
        return 0

    def add(self, position: int, count: int, topic: int) -> None:
        if not self.positions or self.positions[-1] < position:
            self.positions.extend(range(position, position + count))
            self.topics.extend(repeat(topic, count))
            return
        for one in range(position, position + count):
            index = bisect_left(self.positions, one)
            if index == len(self.positions) or self.positions[index] != one:
                self.positions.insert(index, one)
                self.topics.insert(index, topic)

    def remove(self, position: int) -> int:
        index = bisect_left(self.positions, position)
        if index == len(self.positions) or self.positions[index] != position:
            return 0
        del self.positions[index]
        return self.topics.pop(index)


class _DensePage:
    __slots__ = ("_count", "topics")

    def __init__(self, topics: array[int], count: int) -> None:
        self.topics = topics
        self._count = count

    def __len__(self) -> int:
        return self._count

    def get(self, position: int) -> int:
        return self.topics[position]

    def add(self, position: int, count: int, topic: int) -> None:
        self._count += self.topics[position : position + count].count(0)
        self.topics[position : position + count] = array("I", repeat(topic, count))

    def remove(self, position: int) -> int:
        topic = self.topics[position]
        if topic:
            self.topics[position] = 0
            self._count -= 1
        return topic


class Waiting:
    """The waiting numbers, each with the number of its topic, which is never 0."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, _SparsePage | _DensePage] = {}

    def get(self, number: int) -> int:
        """Return the topic of a number; 0 if it does not wait."""
        page = self._pages.get(number >> PAGE_BITS)
        return page.get(number & _MASK) if page is not None else 0

    def add(self, first: int, count: int, topic: int) -> None:
        """Add `count` numbers from `first` on, none of which waits yet."""
        while count > 0:
            position = first & _MASK
            run = min(count, PAGE_NUMBERS - position)
            key = first >> PAGE_BITS
            page = self._pages.get(key)
            if page is None:
                page = self._pages[key] = _SparsePage()
            if isinstance(page, _SparsePage) and len(page) + run > SPARSE_MAX:
                page = self._pages[key] = _to_dense(page)
            page.add(position, run, topic)
            first += run
            count -= run

    def remove(self, number: int) -> int:
        """Remove a number; return its topic, or 0 if it did not wait."""
        key = number >> PAGE_BITS
        page = self._pages.get(key)
        if page is None:
            return 0
        topic = page.remove(number & _MASK)
        if not len(page):
            del self._pages[key]
        elif len(page) < DENSE_MIN and isinstance(page, _DensePage):
            self._pages[key] = _to_sparse(page)
        return topic

    def state(self) -> WaitingState:
        """Return a copy for a checkpoint."""
        return [
            (key, page.positions.tobytes(), page.topics.tobytes())
            if isinstance(page, _SparsePage)
            else (key, b"", page.topics.tobytes())
            for key, page in self._pages.items()
        ]

    def load(self, state: WaitingState) -> None:
        for key, positions, topics in state:
            if positions:
                sparse = _SparsePage()
                sparse.positions.frombytes(positions)
                sparse.topics.frombytes(topics)
                self._pages[key] = sparse
            else:
                table = array("I", topics)
                self._pages[key] = _DensePage(table, PAGE_NUMBERS - table.count(0))

    def counts(self) -> dict[int, int]:
        """Count the waiting numbers of each topic from scratch."""
        counts: dict[int, int] = {}
        for page in self._pages.values():
            for topic in set(page.topics) - {0}:
                counts[topic] = counts.get(topic, 0) + page.topics.count(topic)
        return counts


def _to_dense(page: _SparsePage) -> _DensePage:
    topics = array("I", bytes(4 * PAGE_NUMBERS))
    for position, topic in zip(page.positions, page.topics, strict=True):
        topics[position] = topic
    return _DensePage(topics, len(page))


def _to_sparse(page: _DensePage) -> _SparsePage:
    sparse = _SparsePage()
    for position, topic in enumerate(page.topics):
        if topic:
            sparse.positions.append(position)
            sparse.topics.append(topic)
    return sparse


class Released:
    """Which of the newest numbers were released, so that a late cancel gets the reason."""

    __slots__ = ("_pages",)

    def __init__(self, pages: dict[int, bytes] | None = None) -> None:
        self._pages = {key: bytearray(bits) for key, bits in (pages or {}).items()}

    def __contains__(self, number: int) -> bool:
        page = self._pages.get(number >> PAGE_BITS)
        position = number & _MASK
        return page is not None and bool(page[position >> 3] & 1 << (position & 7))

    def add(self, number: int) -> None:
        self.add_many((number,))

    def add_many(self, numbers: Iterable[int]) -> None:
        pages = self._pages
        for number in numbers:
            page = pages.get(number >> PAGE_BITS) or self._new_page(number >> PAGE_BITS)
            position = number & _MASK
            page[position >> 3] |= 1 << (position & 7)

    def _new_page(self, key: int) -> bytearray:
        page = self._pages[key] = bytearray(_BITMAP_BYTES)
        if len(self._pages) > RELEASED_PAGES_MAX:
            del self._pages[min(self._pages)]
        return page

    def state(self) -> dict[int, bytes]:
        return {key: bytes(bits) for key, bits in self._pages.items()}
