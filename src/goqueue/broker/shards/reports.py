"""Reports to an observer what was written to an internal partition, when it is committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from goqueue.loop.clock import Clock
from goqueue.partition import Partition

RETRY_MS = 500


class Reports:
    """Calls reports in the order of the log, each once its records are committed.

    A wait for a commit may end with an error, although the records are committed later: for a while
    too few replicas may be in sync. So reports that are left are tried again. While this node leads
    the partition, waits end in the order of the log.
    """

    def __init__(self, clock: Clock, partition: Partition) -> None:
        self._clock = clock
        self._partition = partition
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._is_retrying = False
        self._is_closed = False

    def add(self, report: Callable[[], None]) -> None:
        """Call `report` when everything written so far is committed."""
        end = self._partition.end_offset
        self._partition.when_committed(end - 1, lambda _: self.waited(end, report))

    def waited(self, end: int, report: Callable[[], None]) -> None:
        """Call `report`, as a wait for the commit of what is before `end` is over.

        If that has failed, it is called later.
        """
        if not self._is_closed:
            self._waiting.append((end, report))
            self._report()

    def close(self) -> None:
        """Drop all reports: another node leads the partition."""
        self._is_closed = True
        self._waiting.clear()

    def _report(self) -> None:
        """Call the reports of what is committed."""
        while self._waiting and self._waiting[0][0] <= self._partition.high_watermark:
            self._waiting.popleft()[1]()
        if self._waiting and not self._is_retrying:
            self._is_retrying = True
            self._clock.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        self._report()
