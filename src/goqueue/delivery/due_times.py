"""When messages that wait may be chosen again, by partition and over all partitions of a queue."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Waiting(Protocol):
    """A partition, and its messages that wait until a time."""

    @property
    def waiting(self) -> Mapping[int, int]: ...


class Due(NamedTuple):
    """A message that may be chosen again from a time on."""

    due_ms: int
    partition: int
    offset: int


class DueTimes:
    """A heap for each partition, and one of the earliest time of each.

    An entry counts as long as its message waits until exactly that time; others are dropped when
    they come up.
    """

    __slots__ = ("_heads", "_listed", "_partitions", "by_partition")

    def __init__(self, partitions: Sequence[Waiting]) -> None:
        """`partitions` grows with the queue."""
        self._partitions = partitions
        self.by_partition: dict[int, list[tuple[int, int]]] = {}  # empty if nothing waits
        self._heads: list[tuple[int, int]] = []  # due time and partition
        self._listed: dict[int, int] = {}  # the due time of each partition's valid head

    def add(self, number: int, offset: int, due_ms: int) -> None:
        heap = self.by_partition.setdefault(number, [])
        heapq.heappush(heap, (due_ms, offset))
        if heap[0][0] == due_ms and self._listed.get(number) != due_ms:
            self._list(number, due_ms)

    def first(self, number: int | None = None) -> Due | None:
        """Return the earliest message, of one partition or of all."""
        if number is not None:
            head = self._head(number)
            return None if head is None else Due(head[0], number, head[1])
        while self._heads:
            due_ms, number = self._heads[0]
            head = self._head(number) if self._listed.get(number) == due_ms else None
            if head is not None and head[0] == due_ms:
                return Due(due_ms, number, head[1])
            heapq.heappop(self._heads)
            if self._listed.get(number) == due_ms:
                del self._listed[number]
                if head is not None:
                    self._list(number, head[0])
        return None

    def take(self, number: int) -> None:
        """Remove the earliest message of a partition."""
        heapq.heappop(self.by_partition[number])

    def next_after_ms(self, now_ms: int) -> int | None:
        """Return the first due time after now among the earliest ones of the partitions."""
        heads = [self._head(number) for number in list(self.by_partition)]
        return min((one[0] for one in heads if one is not None and one[0] > now_ms), default=None)

    def _head(self, number: int) -> tuple[int, int] | None:
        heap = self.by_partition.get(number)
        if heap is None:
            return None
        waiting = self._partitions[number].waiting
        while heap and waiting.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        if heap:
            return heap[0]
        del self.by_partition[number]
        return None

    def _list(self, number: int, due_ms: int) -> None:
        self._listed[number] = due_ms
        heapq.heappush(self._heads, (due_ms, number))
