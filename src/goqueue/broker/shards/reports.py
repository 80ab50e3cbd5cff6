"""Reports to an observer what was written to an internal partition, when it is committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition

RETRY_MS = 500


class Reports:
    """Calls reports in the order of the log, each once its records are committed.

    A wait for a commit may end with an error, although the records are committed later: for a while
    too few replicas may be in sync. So reports that are left are tried again.
    """

    def __init__(self, clock: Clock, partition: Partition) -> None:
        self._clock = clock
        self._partition = partition
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._is_retrying = False
        self._is_closed = False

    def add(self, report: Callable[[], None]) -> None:
        """Call `report` when everything written so far is committed."""
        self.expect(report)
        self._partition.when_committed(self._partition.end_offset - 1, self.committed)

    def expect(self, report: Callable[[], None]) -> None:
        """Do as `add` does, for a caller that waits for the commit too and calls `committed`."""
        self._waiting.append((self._partition.end_offset, report))

    def close(self) -> None:
        """Drop all reports: another node leads the partition."""
        self._is_closed = True
        self._waiting.clear()

    def committed(self, _: GoQueueError | None = None) -> None:
        """Call the reports of what is committed."""
        while self._waiting and self._waiting[0][0] <= self._partition.high_watermark:
            self._waiting.popleft()[1]()
        if self._waiting and not self._is_retrying and not self._is_closed:
            self._is_retrying = True
            self._clock.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        self.committed()
