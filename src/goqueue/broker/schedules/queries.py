"""Queries about scheduled messages, at their owner or at all owners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from goqueue.broker.schedules.listing import (
    Schedule,
    ScheduleListing,
    SchedulePage,
    ScheduleStats,
    Wanted,
)
from goqueue.broker.schedules.owners import ScheduleOwners
from goqueue.delivery.schedules import NEVER_MS, PARTITION_OPEN
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, promised
from goqueue.model.errors import UnknownSchedule

if TYPE_CHECKING:
    from goqueue.broker.schedules.shards import ScheduleShard, ScheduleShards


class ScheduleQueries:
    """Shows, lists and counts messages."""

    def __init__(
        self,
        clock: Clock,
        owners: ScheduleOwners,
        shards: ScheduleShards,
        find: Callable[[str], tuple[ScheduleShard, int]],
    ) -> None:
        """`find` returns the shard and the number of a message that this node owns."""
        self._clock = clock
        self._owners = owners
        self._shards = shards
        self._find = find

    # At all owners

    async def page(self, wanted: Wanted, *, limit: int, after: str) -> SchedulePage:
        """The first entries of all owners, by due time, after a cursor."""
        asked = [
            self._owners.page(node, wanted, limit=limit, after=after)
            for node in self._owners.others()
        ]
        asked.append(self.list_here(wanted, limit=limit, after=after))
        pages = [await one for one in asked]
        if len(pages) == 1:
            return pages[0]
        ids = self._owners.ids()
        entries = sorted(
            (entry for page in pages for entry in page.entries),
            key=lambda entry: (entry.due_ms, *ids.read(entry.id)),
        )
        has_more = len(entries) > limit or any(page.next_cursor for page in pages)
        entries = entries[:limit]
        cursor = f"{entries[-1].due_ms}~{entries[-1].id}" if has_more and entries else ""
        return SchedulePage(entries, cursor)

    async def count(self, wanted: Wanted) -> int:
        """How many messages of all owners match."""
        asked = [self._owners.count(node, wanted) for node in self._owners.others()]
        asked.append(self.count_here(wanted))
        return sum([await one for one in asked])

    async def stats(self) -> ScheduleStats:
        """The metrics of all owners; each percentile is the worst of any node."""
        asked = [self._owners.stats(node) for node in self._owners.others()]
        found = [await one for one in asked] + [self.stats_here()]
        dues_ms = [one.next_due_ms for one in found if one.next_due_ms is not None]
        return ScheduleStats(
            pending=sum(one.pending for one in found),
            released=sum(one.released for one in found),
            cancelled=sum(one.cancelled for one in found),
            dead_lettered=sum(one.dead_lettered for one in found),
            dropped=sum(one.dropped for one in found),
            late_ms_p50=max(one.late_ms_p50 for one in found),
            late_ms_p99=max(one.late_ms_p99 for one in found),
            late_ms_max=max(one.late_ms_max for one in found),
            next_due_ms=min(dues_ms, default=None),
        )

    # On this node

    def get(self, schedule_id: str) -> Schedule:
        """Return a waiting message that this node owns."""
        shard, number = self._find(schedule_id)
        agenda = shard.log.agenda
        if shard.changes.is_being_cancelled(number):
            raise UnknownSchedule(schedule_id)
        if not agenda.is_waiting(number):
            agenda.check_changeable(number, schedule_id)
            raise UnknownSchedule(schedule_id)
        message = shard.log.read(number)
        if message is None:
            raise UnknownSchedule(schedule_id)
        return Schedule(
            schedule_id,
            message.topic,
            None if message.partition == PARTITION_OPEN else message.partition,
            agenda.moved.get(number, message.due_ms),
            message.key,
            message.value,
            message.headers,
            message.timestamp_ms,
        )

    def list_here(self, wanted: Wanted, *, limit: int, after: str) -> Promise[SchedulePage]:
        self._shards.check_loaded()
        self._shards.note_released()
        return promised(self._listing().page(wanted, limit=limit, after=after))

    def count_here(self, wanted: Wanted) -> Promise[int]:
        self._shards.check_loaded()
        self._shards.note_released()
        if wanted.from_ms <= 0 and wanted.until_ms >= NEVER_MS:
            count: Promise[int] = Promise()
            count.resolve(sum(one.log.agenda.count(wanted.topics) for one in self._shards))
            return count
        return promised(self._listing().count(wanted))

    def calendar_here(self, wanted: Wanted, times_ms: Sequence[int]) -> Promise[Sequence[int]]:
        self._shards.check_loaded()
        self._shards.note_released()
        return promised(self._listing().calendar(wanted, times_ms))

    def counts_here(self) -> dict[str, int]:
        """Return how many messages this node keeps, by topic."""
        counts: dict[str, int] = {}
        for shard in self._shards:
            for topic, count in shard.log.agenda.counts().items():
                counts[topic] = counts.get(topic, 0) + count
        return counts

    def sizes_here(self) -> dict[str, int]:
        """Return how many bytes of messages this node keeps, by topic."""
        sizes: dict[str, int] = {}
        for shard in self._shards:
            for topic, size in shard.log.agenda.sizes().items():
                sizes[topic] = sizes.get(topic, 0) + size
        return sizes

    def _listing(self) -> ScheduleListing:
        logs = [shard.log for shard in self._shards]
        return ScheduleListing(self._clock, logs, self._owners.ids())

    def stats_here(self) -> ScheduleStats:
        self._shards.note_released()
        agendas = [shard.log.agenda for shard in self._shards]
        metrics = self._shards.metrics
        next_due_ms = min(
            (one.timetable.due_min_ms() for one in agendas if one.count()), default=NEVER_MS
        )
        return ScheduleStats(
            pending=sum(one.count() for one in agendas),
            released=sum(one.released_count for one in agendas),
            cancelled=sum(one.cancelled_count for one in agendas),
            dead_lettered=metrics.dead_lettered,
            dropped=metrics.dropped,
            late_ms_p50=metrics.lateness.percentile_ms(50),
            late_ms_p99=metrics.lateness.percentile_ms(99),
            late_ms_max=metrics.lateness.max_ms,
            next_due_ms=next_due_ms if next_due_ms < NEVER_MS else None,
        )
