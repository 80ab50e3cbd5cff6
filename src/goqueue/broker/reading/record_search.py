"""What a search for records wants, and what it returns."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from goqueue.model.batch import Record
from goqueue.model.errors import InvalidRequest
from goqueue.model.tenants import Text

if TYPE_CHECKING:
    from goqueue.model.scanning import Wanted

_TRACE_DIGITS = frozenset("0123456789abcdef")


class RecordFilter(NamedTuple):
    """Conditions on a record. All that are given must hold."""

    key: bytes | None = None
    trace_id: Text | None = None  # 32 digits, or as X-Ray writes it
    header: Text | None = None  # the name of a header that it has
    header_value: bytes | None = None  # and the value of that header
    text: bytes | None = None  # bytes in the key, the value or the value of a header

    def wanted(self) -> Wanted:
        """Return the conditions as scans take them; raise if they are not valid."""
        if self.header_value is not None and self.header is None:
            raise InvalidRequest("The value of a header needs the name of the header.")
        header = None if self.header is None else self.header.encode()
        trace = None if self.trace_id is None else trace_digits(self.trace_id)
        return self.key, trace, header, self.header_value, self.text

    @property
    def is_empty(self) -> bool:
        return all(one is None for one in self)


class SearchPart(NamedTuple):
    """What one call has found in a partition, in order, and where the next one continues."""

    records: Sequence[Record]
    next_offset: int
    is_end: bool
    read_bytes: int = 0
    skipped_bytes: int = 0  # which filters ruled out


class SearchPage(NamedTuple):
    """What a search of several partitions has found, the oldest record first."""

    records: Sequence[tuple[int, Record]]  # each with its partition
    places: Sequence[tuple[int, int]]  # partitions and offsets where to continue
    read_bytes: int
    skipped_bytes: int


def merge_parts(
    parts: Mapping[int, SearchPart], later: Sequence[tuple[int, int]], *, limit: int
) -> SearchPage:
    """Return what was found in partitions as one page; `later` are those to search next time."""
    merged = list(heapq.merge(*(_timed(number, part) for number, part in parts.items())))
    left: dict[int, int] = {}  # the first record of each partition that does not fit
    for _, number, offset, _ in merged[limit:]:
        left.setdefault(number, offset)
    records = [(number, record) for _, number, _, record in merged[:limit]]
    places = [
        (number, left.get(number, part.next_offset))
        for number, part in parts.items()
        if number in left or not part.is_end
    ]
    return SearchPage(
        records,
        [*places, *later],
        sum(part.read_bytes for part in parts.values()),
        sum(part.skipped_bytes for part in parts.values()),
    )


def _timed(number: int, part: SearchPart) -> Iterator[tuple[int, int, int, Record]]:
    """Yield records in their order, with times that do not decrease, as partitions are merged."""
    newest = -1
    for record in part.records:
        newest = max(newest, record.timestamp_ms)
        yield newest, number, record.offset, record


def trace_digits(trace_id: str) -> bytes:
    """Return the 32 digits of a trace id, given as such or as X-Ray writes it."""
    # Imported here with all that searches need, because most nodes are never searched.
    from goqueue.model.scanning import TRACE_DIGITS

    digits = trace_id.lower()
    if digits.startswith("1-"):
        digits = digits[2:].replace("-", "", 1)
    if len(digits) != TRACE_DIGITS or not _TRACE_DIGITS.issuperset(digits):
        raise InvalidRequest(
            f"{trace_id[:60]!r} is not a trace id: 32 hexadecimal digits, or 1-8 digits-24 digits."
        )
    return digits.encode()
