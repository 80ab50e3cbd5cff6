"""Reports what happens to the scheduled messages of one log to an observer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from goqueue.broker.shards.reports import Reports
from goqueue.delivery.ranges import ranges_of
from goqueue.delivery.schedules import ScheduledMessage
from goqueue.loop.clock import Clock
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Observer, Target
from goqueue.model.tenants import TopicName
from goqueue.partition import Partition

_NOWHERE = Target(TopicPartition(TopicName(""), -1), -1)


class Move(NamedTuple):
    """A range of messages that were released, and where they are now."""

    first: int
    end: int
    target: Target


class Observation:
    """Reports events when they are committed."""

    def __init__(self, clock: Clock, observer: Observer, partition: Partition) -> None:
        self._observer = observer
        self._partition = partition
        self._reports = Reports(clock, partition)

    def close(self) -> None:
        """Report nothing more: another node owns the log."""
        self._reports.close()

    def scheduled(self, first: int, messages: Sequence[ScheduledMessage]) -> None:
        """Report messages that were written just now, under contiguous numbers."""
        self._when_committed(partial(self._report_scheduled, first, messages))

    def activated(
        self, messages: Iterable[tuple[int, ScheduledMessage]], marker_offset: int
    ) -> None:
        """Report messages of a committed transaction, each given with its number."""
        for number, message in messages:
            self._report_scheduled(number, [message])
        self._observer.reported(self._partition.name, marker_offset + 1)

    def released(self, numbers: Sequence[int], moves: Sequence[Move]) -> None:
        """Report releases that were noted just now; without `moves`, to where is not known."""
        if not moves:
            moves = [Move(*one, _NOWHERE) for one in ranges_of(sorted(numbers))]
        self._when_committed(partial(self._report_released, moves))

    def cancelled(self, numbers: Sequence[int]) -> None:
        """Report messages whose end was noted just now."""
        self._when_committed(partial(self._report_cancelled, numbers))

    def _when_committed(self, report: Callable[[], None]) -> None:
        """Report when everything written so far is committed."""
        end = self._partition.end_offset

        def committed() -> None:
            report()
            self._observer.reported(self._partition.name, end)

        self._reports.add(committed)

    def _report_scheduled(self, first: int, messages: Sequence[ScheduledMessage]) -> None:
        for (due_ms, topic, number), some in groupby(messages, _due_and_target):
            end = first + len(list(some))
            target = Target(TopicPartition(TopicName(topic), number), -1)
            log = self._partition.name
            self._observer.scheduled(log, (first, end), due_ms=due_ms, target=target)
            first = end

    def _report_released(self, moves: Sequence[Move]) -> None:
        for first, end, target in moves:
            self._observer.released(self._partition.name, [(first, end)], target=target)

    def _report_cancelled(self, numbers: Sequence[int]) -> None:
        self._observer.cancelled(self._partition.name, ranges_of(sorted(numbers)))


def _due_and_target(message: ScheduledMessage) -> tuple[int, str, int]:
    return message.due_ms, message.topic, message.partition
