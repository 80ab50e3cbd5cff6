"""Events that wait to be written: a bounded number, the most severe of them if there are more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from goqueue.tenancy.audit.events import Severity


class QueueLimits(NamedTuple):
    events_max: int = 10_000
    bytes_max: int = 16 << 20


class _Waiting(NamedTuple):
    number: int
    text: bytes
    times: int  # how many events it stands for


class AuditQueue:
    """A queue in the order of arrival that drops the oldest of the lowest severity."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self._limits = limits or QueueLimits()
        self._waiting: dict[Severity, deque[_Waiting]] = {one: deque() for one in Severity}
        self._last = 0
        self._length = self._size = 0
        self.lost = 0  # events that were dropped, and not reported yet

    def __len__(self) -> int:
        return self._length

    def add(self, severity: Severity, text: bytes, *, count: int = 1) -> None:
        self._last += 1
        self._waiting[severity].append(_Waiting(self._last, text, count))
        self._length += 1
        self._size += len(text)
        while self._length > self._limits.events_max or self._size > self._limits.bytes_max:
            self._drop()

    def _drop(self) -> None:
        lowest = next(one for one in self._waiting.values() if one)
        self.lost += self._remove(lowest).times

    def take(self, *, events_max: int, bytes_max: int) -> list[bytes]:
        """Remove the oldest events up to a number and a size, at least one if there is one."""
        taken: list[bytes] = []
        size = 0
        for oldest in self._in_order():
            size += len(oldest[0].text)
            if taken and (size > bytes_max or len(taken) >= events_max):
                break
            taken.append(self._remove(oldest).text)
        return taken

    def take_lost(self) -> int:
        """Return the number of events that were dropped since the last call."""
        lost, self.lost = self.lost, 0
        return lost

    def _in_order(self) -> Iterator[deque[_Waiting]]:
        """Return, again and again, the queue whose first event is the oldest."""
        while self._length:
            yield min((one for one in self._waiting.values() if one), key=lambda one: one[0].number)

    def _remove(self, waiting: deque[_Waiting]) -> _Waiting:
        removed = waiting.popleft()
        self._length -= 1
        self._size -= len(removed.text)
        return removed
