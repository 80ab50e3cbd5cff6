"""Open transactions of one partition, and the last stable offset.

A transaction starts here with its first batch and ends with a marker. Until the marker is
committed, read-committed readers stop before the transaction's first record: that is the last
stable offset. All of this is a function of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from goqueue.model.batch import BatchHeader
from goqueue.model.errors import TransactionAbortable
from goqueue.storage.index import AbortedTransaction, aborted_by

# Each occupies memory until it ends; further ones must abort.
OPEN_MAX = 100_000


class OpenTransaction(msgspec.Struct, array_like=True):
    """An open transaction of a producer; `last_offset` is that of its last batch."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int


class Transactions:
    """The transactions of one partition that are open, or whose markers are uncommitted."""

    __slots__ = ("_ended", "_open", "first_unstable")

    def __init__(
        self,
        still_open: Iterable[OpenTransaction] = (),
        ended: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.reset(still_open, ended)

    def reset(
        self,
        still_open: Iterable[OpenTransaction] = (),
        ended: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Start again from saved transactions."""
        # Ordered by first offset, since that is the order in which they start.
        self._open = {one.producer_id: one for one in still_open}
        self._ended = deque(ended)  # offsets of the marker and of the beginning
        self.first_unstable: int | None = None
        self._find_first_unstable()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenTransaction]:
        return iter(self._open.values())

    def get(self, producer_id: int) -> OpenTransaction | None:
        return self._open.get(producer_id)

    def check_room(self, producer_id: int) -> None:
        """Refuse a transaction beyond the limit."""
        if len(self._open) >= OPEN_MAX and producer_id not in self._open:
            raise TransactionAbortable(
                f"A partition has {OPEN_MAX} open transactions, which is the limit; abort this "
                "one and retry when others have ended."
            )

    def note(self, header: BatchHeader) -> None:
        """Note that a batch of a transaction was written; the first one opens it.

        An empty batch is what compaction leaves of one whose transaction ended long ago.
        """
        if not header.record_count:
            return
        known = self._open.get(header.producer_id)
        if known is not None:
            known.last_offset = header.last_offset
            known.producer_epoch = header.producer_epoch
            return
        self._open[header.producer_id] = OpenTransaction(
            header.producer_id, header.producer_epoch, header.base_offset, header.last_offset
        )
        if self.first_unstable is None:
            self.first_unstable = header.base_offset

    def end(self, header: BatchHeader, *, is_commit: bool) -> AbortedTransaction | None:
        """Note that a marker was written; return what it aborted, if anything."""
        ended = self._open.pop(header.producer_id, None)
        if ended is None:
            return None
        self._ended.append((header.base_offset, ended.first_offset))
        if is_commit:
            return None
        still_open = (one.first_offset for one in self._open.values())
        return aborted_by(header, first_offset=ended.first_offset, still_open=still_open)

    def advance(self, high_watermark: int) -> None:
        """Note that markers before `high_watermark` are committed."""
        ended = self._ended
        if not ended or ended[0][0] >= high_watermark:
            return
        while ended and ended[0][0] < high_watermark:
            ended.popleft()
        self._find_first_unstable()

    def forget_before(self, offset: int) -> bool:
        """Drop transactions without records at or after the new start `offset` of the log."""
        gone = [one.producer_id for one in self._open.values() if one.last_offset < offset]
        for producer_id in gone:
            del self._open[producer_id]
        if gone:
            self._find_first_unstable()
        return bool(gone)

    def state(self) -> list[OpenTransaction]:
        """Return a copy, because a thread saves it while more batches arrive."""
        return [
            OpenTransaction(one.producer_id, one.producer_epoch, one.first_offset, one.last_offset)
            for one in self._open.values()
        ]

    def ended(self) -> list[tuple[int, int]]:
        """Return the marker and first offsets of transactions with uncommitted markers."""
        return list(self._ended)

    def _find_first_unstable(self) -> None:
        firsts = [first for _, first in self._ended]
        if self._open:
            firsts.append(next(iter(self._open.values())).first_offset)
        self.first_unstable = min(firsts, default=None)
