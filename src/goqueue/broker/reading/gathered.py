"""One read of partitions led by different nodes, merged into one page."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial

from goqueue.broker.reading.records import Page, Place, Reading, record_size
from goqueue.broker.reading.remote import RemoteReader
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition


class GatheredReading(Reading):
    """One read of partitions led by different nodes."""

    def __init__(
        self,
        reader: RemoteReader,
        places: Sequence[Place],
        *,
        records_max: int,
        bytes_max: int,
        is_committed_only: bool = True,
    ) -> None:
        super().__init__(
            places,
            records_max=records_max,
            bytes_max=bytes_max,
            is_committed_only=is_committed_only,
        )
        self._reader = reader
        self._nodes: dict[int, list[int]] = {}
        self._pages: dict[int, Page] = {}
        self._left = 0
        self._cancels: list[Callable[[], None]] = []
        self._is_over = False

    def begin(self, wait_ms: int) -> None:
        """Read now; if there is nothing yet, read again when there is or on timeout."""
        self.cancel = self._give_up
        try:
            self._nodes = self._reader.split(self._places)
        except GoQueueError as error:
            self.promise.reject(error)
            return
        if not self._nodes:
            self.promise.resolve(Page())
            return
        # A read from a single node can wait there, without a second call.
        is_one = len(self._nodes) == 1
        self._ask(wait_ms if is_one else 0, then_wait_ms=0 if is_one else wait_ms)

    def _ask(self, wait_ms: int, *, then_wait_ms: int) -> None:
        self._pages, self._cancels = {}, []
        self._left = len(self._nodes)
        asked = []
        for node, positions in self._nodes.items():
            promise, cancel = self._reader.read(
                node,
                [self._places[position] for position in positions],
                records_max=self._records_max,
                bytes_max=self._bytes_max,
                wait_ms=wait_ms,
                is_committed_only=self._is_committed_only,
            )
            self._cancels.append(cancel)
            asked.append((node, promise))
        for node, promise in asked:
            promise.then(partial(self._answered, node, wait_ms, then_wait_ms))

    def _answered(
        self,
        node: int,
        wait_ms: int,
        then_wait_ms: int,
        page: Page | None,
        error: Exception | None,
    ) -> None:
        if self._is_over:
            return
        if page is None:
            assert error is not None
            self._give_up()
            self.promise.reject(error)
            return
        self._pages[node] = page
        self._left -= 1
        if self._left and (wait_ms == 0 or page.is_empty):
            return
        whole = self._merged()
        if whole.is_empty and then_wait_ms > 0:
            self._places = whole.places
            self._ask(then_wait_ms, then_wait_ms=0)
            return
        self._give_up()
        self.promise.resolve(whole)

    def _merged(self) -> Page:
        """Merge the pages received, the oldest records first."""
        whole = Page(places=list(self._places))
        for node, page in self._pages.items():
            for position, place in zip(self._nodes[node], page.places, strict=True):
                whole.places[position] = place
            whole.damaged += page.damaged
        merged = heapq.merge(
            *(page.records for page in self._pages.values()), key=lambda one: one[1].timestamp_ms
        )
        room = self._bytes_max
        left: dict[Partition, int] = {}  # the first record of each partition that did not fit
        for partition, record in merged:
            if len(whole.records) >= self._records_max or room <= 0:
                left.setdefault(partition, record.offset)
            else:
                whole.records.append((partition, record))
                room -= record_size(record)
        if left:
            whole.places = [
                one._replace(offset=left.get(one.partition, one.offset)) for one in whole.places
            ]
            # Damage behind records that did not fit is found again by the next read.
            whole.damaged = [
                one
                for one in whole.damaged
                if one.offset < left.get(one.partition, one.next_offset)
            ]
        return whole

    def _give_up(self) -> None:
        self._is_over = True
        for cancel in self._cancels:
            cancel()
