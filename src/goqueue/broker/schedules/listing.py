"""Queries on schedules: lists and counts of waiting messages, a block of entries at a time.

A bucket in the far future may hold a million unordered entries, so a list scans whole buckets and
keeps the earliest. Between two blocks it yields to the event loop.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from heapq import heappush, heappushpop
from typing import NamedTuple

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.delivery.schedules import NEVER_MS, Agenda, Entry, ScheduleIds
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.batch import Header
from goqueue.model.errors import InvalidRequest, UnknownSchedule
from goqueue.model.tenants import Text, TopicName

LIST_MAX = 1000

_Position = tuple[int, int, int]  # due time, log and number


class Schedule(NamedTuple):
    """A waiting message, as returned to callers."""

    id: Text
    topic: TopicName
    partition: int | None  # None: chosen when the message is released
    due_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


class ScheduleStats(NamedTuple):
    """Counts since the topic was created, except `dropped` and lateness: since the node started."""

    pending: int
    released: int
    cancelled: int
    dead_lettered: int
    dropped: int
    late_ms_p50: int
    late_ms_p99: int
    late_ms_max: int
    next_due_ms: int | None


class ScheduledEntry(NamedTuple):
    """One entry in a list of schedules."""

    id: Text
    topic: TopicName
    due_ms: int


class SchedulePage(NamedTuple):
    """Entries by due time; `next_cursor` continues after them, and is empty at the end."""

    entries: list[ScheduledEntry]
    next_cursor: Text


class Wanted(NamedTuple):
    """A filter: schedules of some topics or all, due within a time range."""

    topics: frozenset[str] | None = None
    from_ms: int = 0
    until_ms: int = NEVER_MS

    def pick(self, agenda: Agenda, block: array[int]) -> list[Entry]:
        """The entries of a block that match and are still valid."""
        topics, from_ms, until_ms = self
        return [
            (due_ms, number)
            for due_ms, number in zip(block[::2], block[1::2], strict=True)
            if from_ms <= due_ms < until_ms
            and agenda.is_current(number, due_ms)
            and (topics is None or agenda.topic_of(number) in topics)
        ]


class ScheduleListing:
    """Scans the agendas of all logs."""

    def __init__(self, clock: Clock, logs: list[ScheduleLog], ids: ScheduleIds) -> None:
        self._clock = clock
        self._logs = {log.number: log for log in logs}
        self._ids = ids

    async def page(self, wanted: Wanted, *, limit: int, after: str) -> SchedulePage:
        """The first matching entries, by due time, after a cursor."""
        if not 1 <= limit <= LIST_MAX:
            raise InvalidRequest(f"The limit of a list is 1 to {LIST_MAX}, not {limit}.")
        cursor = self._read_cursor(after) if after else (0, -1, -1)
        wanted = wanted._replace(from_ms=max(wanted.from_ms, cursor[0]))
        earliest = _Earliest(limit + 1)
        for log in self._logs.values():
            await self._collect(log, wanted, cursor, earliest)
        positions = earliest.positions()
        entries = [
            ScheduledEntry(
                self._ids.write(log, number), self._logs[log].agenda.topic_of(number), due_ms
            )
            for due_ms, log, number in positions[:limit]
        ]
        next_cursor = f"{entries[-1].due_ms}~{entries[-1].id}" if len(positions) > limit else ""
        # Some may have been released or cancelled during the scan.
        return SchedulePage([entry for entry in entries if entry.topic], next_cursor)

    async def _collect(
        self, log: ScheduleLog, wanted: Wanted, cursor: _Position, earliest: _Earliest
    ) -> None:
        agenda = log.agenda
        agenda.timetable.readers += 1
        try:
            for start_ms, blocks in agenda.blocks(wanted.from_ms, wanted.until_ms):
                if earliest.has_all_before(start_ms):
                    break
                for block in blocks:
                    for due_ms, number in wanted.pick(agenda, block):
                        position = (due_ms, log.number, number)
                        if position > cursor:
                            earliest.add(position)
                    await self._pause()
                    log.check_open()
        finally:
            agenda.timetable.readers -= 1

    async def count(self, wanted: Wanted) -> int:
        """The number of matching messages."""
        count = 0
        for log in self._logs.values():
            agenda = log.agenda
            seen: set[int] = set()  # Only a rescheduled message can have two entries.
            agenda.timetable.readers += 1
            try:
                for _, blocks in agenda.blocks(wanted.from_ms, wanted.until_ms):
                    for block in blocks:
                        found = [number for _, number in wanted.pick(agenda, block)]
                        moved = {number for number in found if number in agenda.moved}
                        count += len(found) - sum(number in agenda.moved for number in found)
                        count += len(moved - seen)
                        seen |= moved
                        await self._pause()
                        log.check_open()
            finally:
                agenda.timetable.readers -= 1
        return count

    async def calendar(self, wanted: Wanted, times_ms: Sequence[int]) -> Sequence[int]:
        """Return how many matching messages are due between each two of these times."""
        counts = [0] * (len(times_ms) - 1)
        wanted = wanted._replace(from_ms=times_ms[0], until_ms=times_ms[-1])
        for log in self._logs.values():
            agenda = log.agenda
            seen: set[int] = set()  # Only a rescheduled message can have two entries.
            agenda.timetable.readers += 1
            try:
                for _, blocks in agenda.blocks(wanted.from_ms, wanted.until_ms):
                    for block in blocks:
                        for due_ms, number in wanted.pick(agenda, block):
                            if number in agenda.moved:
                                if number in seen:
                                    continue
                                seen.add(number)
                            counts[bisect_right(times_ms, due_ms) - 1] += 1
                        await self._pause()
                        log.check_open()
            finally:
                agenda.timetable.readers -= 1
        return counts

    def _pause(self) -> Promise[None]:
        """Yield to the event loop."""
        promise: Promise[None] = Promise()
        self._clock.call_soon(lambda: promise.resolve(None))
        return promise

    def _read_cursor(self, text: str) -> _Position:
        due, _, schedule_id = text.partition("~")
        try:
            log, number = self._ids.read(schedule_id)
            return int(due), log, number
        except (ValueError, UnknownSchedule):
            raise InvalidRequest(
                f"{text[:60]!r} is not a cursor; send the one of the previous page."
            ) from None


class _Earliest:
    """Keeps the earliest positions of many, up to a limit, each once."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._heap: list[_Position] = []  # negated, so that the latest is at the top
        self._known: set[_Position] = set()

    def add(self, position: _Position) -> None:
        turned = (-position[0], -position[1], -position[2])
        if turned in self._known:
            return
        if len(self._heap) < self._count_max:
            self._known.add(turned)
            heappush(self._heap, turned)
        elif turned > self._heap[0]:
            self._known.add(turned)
            self._known.discard(heappushpop(self._heap, turned))

    def has_all_before(self, due_ms: int) -> bool:
        """Whether nothing due from this time on can still be included."""
        return len(self._heap) == self._count_max and due_ms > -self._heap[0][0]

    def positions(self) -> list[_Position]:
        return sorted((-due_ms, -log, -number) for due_ms, log, number in self._heap)
