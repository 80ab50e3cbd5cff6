"""Index of aborted transactions: a file for each segment that contains abort markers.

A read-committed reader receives whole ranges of the log, and a list of aborted transactions to
skip. The log itself shows an abort only at a transaction's end, so each abort is indexed here, in
the segment of its marker.

Like the other indexes this one is never authoritative, and covers only synced bytes. A segment
records how many entries there must be, or that this is unknown; a missing or damaged file is then
rebuilt from the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from goqueue.model.batch import TRANSACTIONAL, BatchHeader
from goqueue.storage.index import HEADER_BYTES, Index, Seal

_BLOCK_ENTRIES = 128  # read at once


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted in this partition; `last_offset` is that of its marker.

    All transactions that started before `last_stable_offset` had ended when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSpans:
    """Aborted transactions, arranged for fast look-up by batch."""

    __slots__ = ("_spans",)

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        # By producer; its transactions do not overlap, so these are in order.
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for one in aborted:
            self._spans.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))

    def __bool__(self) -> bool:
        return bool(self._spans)

    def cover(self, header: BatchHeader) -> bool:
        """Return whether a batch belongs to one of the transactions."""
        spans = self._spans.get(header.producer_id)
        if spans is None or not header.attributes & TRANSACTIONAL:
            return False
        at = bisect_right(spans, header.base_offset, key=lambda span: span[0]) - 1
        return at >= 0 and header.base_offset <= spans[at][1]


class TransactionIndex(Index):
    """Aborted transactions in the order of their markers."""

    magic = b"GQTX"
    entry = struct.Struct(">qqqq")
    __slots__ = ()

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        self.add(*aborted)

    def entries(self, number: int = 0) -> Iterator[AbortedTransaction]:
        """Yield the entries from one on; those in the file are read a block at a time."""
        size = self._entry_bytes
        while (left := self._count() - number) > 0:
            count = min(_BLOCK_ENTRIES, left)
            data = self._open().read(HEADER_BYTES + number * size, count * size)
            for at in range(0, count * size, size):
                yield AbortedTransaction._make(self._unpack(data[at : at + size], number))
                number += 1
        for pending in range(number, len(self)):
            yield AbortedTransaction._make(self[pending])

    def overlapping(self, first_offset: int, until_offset: int) -> Iterator[AbortedTransaction]:
        """Yield transactions with their markers at `first_offset` or later.

        They end with the one after which none can have started before `until_offset`.
        """
        for aborted in self.entries(self.floor_number(first_offset - 1, by=2) + 1):
            yield aborted
            if aborted.last_stable_offset >= until_offset:
                return

    def write_before(self, offset: int) -> None:
        """Write the entries whose markers, before `offset`, are synced in the log."""
        self.write_pending(bisect_left(self._pending, offset, key=lambda entry: entry[2]))

    def seal_found(self) -> Seal | None:
        """Return the seal; unlike other indexes this one may be complete and empty."""
        count = self._count()
        if not count and not self._disk.exists(self._path):
            return None
        found = self._read_header(self._open())
        return found if found is not None and found.entries == count else None

    def cut_from(self, offset: int) -> None:
        """Drop the transactions whose markers are at `offset` or later."""
        self.cut(self.floor_number(offset - 1, by=2) + 1)


def aborted_by(
    marker: BatchHeader, *, first_offset: int, still_open: Iterable[int]
) -> AbortedTransaction:
    """Return the entry for a marker; `still_open` are the first offsets of the others, in order."""
    stable = next(iter(still_open), marker.next_offset)
    return AbortedTransaction(marker.producer_id, first_offset, marker.base_offset, stable)
