"""Detects the batches of a fetch response that belong to aborted transactions.

The broker sends all batches, and lists the aborted transactions by producer id and first offset.
Each ends at that producer's abort marker.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from goqueue.model.batch import BatchHeader, decode_batch
from goqueue.model.compression import Buffer

_MARKER: Final = Struct(">hh")  # version, kind of marker
_ABORT: Final = 0


class AbortedTransaction(NamedTuple):
    first_offset: int
    producer_id: int


class AbortedTransactions:
    """Follows the batches of one response, in order."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(transactions)
        self._open: set[int] = set()

    def covers(self, header: BatchHeader, data: Buffer) -> bool:
        """Whether the next batch, this one, belongs to an aborted transaction."""
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            self._open.add(heapq.heappop(self._coming).producer_id)
        if header.is_control:
            if header.producer_id in self._open and _is_abort(data):
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open


def _is_abort(data: Buffer) -> bool:
    key = decode_batch(data)[0].key
    return key is not None and len(key) >= _MARKER.size and _MARKER.unpack_from(key)[1] == _ABORT
