"""Releasing: due messages are appended to their topics, each exactly once.

A release has two steps: the message is appended to its topic, and when it is committed there, its
end is recorded in the schedule log. A crash may happen between the two. The first step is therefore
done by an idempotent producer of the broker's own, with the schedule id in a header, and with one
batch at a time per partition. At the next start the newest batches of that producer are read back
(`recovery`), and their messages are marked as released before any other release.

Why the newest batches are enough: the ends of one batch's messages are written before the next
batch for the same partition, and a sync commits everything written before it began.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from goqueue.broker.schedules.lanes import Lane, Release, message_size, release_batch
from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.positions import OnDisk
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery.schedules import (
    DamagedBucket,
    Entry,
    Lateness,
    ScheduledMessage,
    ScheduleIds,
    TargetKey,
)
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.clock import Clock, Handle
from goqueue.model.batch import add_sequence, read_header
from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.model.key_hash import partition_of_key
from goqueue.model.names import ProducerIdentity

MESSAGES_MAX = 10_000  # in flight at once, over all topics
BYTES_MAX = 32 << 20
TAKE_MAX = 64  # of one log, per event-loop turn
SEARCHES_MAX = 8  # the same, for messages whose position has not been found since the start
RETRY_MS = 1000
UNREADABLE_RETRY_MS = 3_600_000
TURN_PAUSE_MS = 5  # messages due within it share batches and syncs
DEAL_PAUSE_MS = 1  # between two blocks of entries, to yield to others
CLOCK_CHECK_MS = 1000  # the longest sleep, because the wall clock may jump

_log = logging.getLogger(__name__)


class Releaser:
    """Moves due messages from the schedule logs to their topics."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        logs: list[ScheduleLog],
        ids: ScheduleIds,
        *,
        is_full: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._logs = logs
        self._ids = ids
        self._is_full = is_full
        self._producer: NamedProducer | None = None
        self._lanes: dict[TargetKey, Lane] = {}
        self._timer: Handle | None = None
        self._timer_ms = 0
        self._is_turn_set = False
        self._committing: set[ScheduleLog] = set()
        self._fetching: set[ScheduleLog] = set()
        self._turn = 0
        self._pause_until_ms = 0
        self._messages = 0
        self._bytes = 0
        self._stopped: Callable[[], None] | None = None
        self._finishing: list[tuple[Lane, list[Release]]] = []
        self.lateness = Lateness()
        self.is_clean = True  # no release was between the two steps when it stopped
        self.dead_lettered = 0
        self.dropped = 0

    # Starting and stopping

    def start(self, producer: NamedProducer) -> None:
        """Begin to release, as this producer, whose epoch has never been used."""
        self._producer = producer
        self.wake()

    def stop(self, done: Callable[[], None]) -> None:
        """Finish releases in flight, begin no more, then call `done`."""
        self._stopped = done
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for lane in self._lanes.values():
            self._give_back(lane)
        self._finish()

    def _check_stopped(self) -> None:
        if self._stopped is not None and not any(one.is_busy for one in self._lanes.values()):
            done, self._stopped = self._stopped, lambda: None
            done()

    # Turns

    def wake(self) -> None:
        """Schedule a turn soon: there may be something to do."""
        if not self._is_turn_set and self._producer is not None and self._stopped is None:
            self._is_turn_set = True
            self._clock.call_soon(self._take_turn)

    def wake_at(self, due_ms: int) -> None:
        """Schedule a turn at a time when a message is due."""
        if self._timer is not None and due_ms < self._timer_ms:
            self._set_timer(due_ms)

    def _take_turn(self) -> None:
        self._is_turn_set = False
        if self._stopped is not None:
            return
        now_ms = self._clock.wall_ms()
        self._finish()
        is_dealing = False
        for log in self._logs:
            is_dealing |= self._advance(log, now_ms)
        if self._is_full():
            self._set_timer(now_ms + RETRY_MS)
            return
        is_pausing = 0 < self._pause_until_ms - now_ms <= TURN_PAUSE_MS
        has_more = not is_pausing and self._take_all(now_ms)
        for lane in list(self._lanes.values()):
            self._send(lane)
        if has_more:
            self.wake()
        else:
            self._set_timer(now_ms + DEAL_PAUSE_MS if is_dealing else self._next_ms(now_ms))

    def _next_ms(self, now_ms: int) -> int:
        """When the next turn is due; at capacity, only after a release has finished."""
        times = [
            log.agenda.timetable.next_ms()
            for log in self._logs
            if self._has_room() and self._is_usable(log)
        ]
        pause_until_ms = min(self._pause_until_ms, now_ms + TURN_PAUSE_MS)
        return max(min(times, default=now_ms + CLOCK_CHECK_MS), pause_until_ms)

    def _is_usable(self, log: ScheduleLog) -> bool:
        is_idle = log not in self._committing and log not in self._fetching
        return is_idle and log.partition.failure is None

    def _advance(self, log: ScheduleLog, now_ms: int) -> bool:
        """Distribute a block of entries that are due soon; return whether there are more."""
        timetable = log.agenda.timetable
        try:
            timetable.advance(now_ms)
            if timetable.is_dealing:
                timetable.deal()
        except (DamagedBucket, OSError) as error:
            _log.error("the buckets of %s are rebuilt: %s", log.partition.name, error)
            log.rebuild()
        return log.agenda.timetable.is_dealing

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        delay_ms = min(max(0, at_ms - self._clock.wall_ms()), CLOCK_CHECK_MS)
        self._timer = self._clock.call_later(delay_ms, self._take_turn)

    def _has_room(self) -> bool:
        return self._messages < MESSAGES_MAX and self._bytes < BYTES_MAX

    # Selection

    def _take_all(self, now_ms: int) -> bool:
        """Queue due messages of all logs; return whether there may be more."""
        has_more = False
        before = self._messages
        self._turn += 1
        usable = [log for log in self._logs if self._is_usable(log)]
        for index in range(len(usable)):
            has_more |= self._take(usable[(self._turn + index) % len(usable)], now_ms)
        if self._messages > before and not has_more:
            self._pause_until_ms = now_ms + TURN_PAUSE_MS
        return has_more

    def _take(self, log: ScheduleLog, now_ms: int) -> bool:
        """Queue due messages of one log; return whether there may be more."""
        if not self._has_room():
            return False
        room = min(TAKE_MAX, MESSAGES_MAX - self._messages)
        entries = self._only_committed(log, log.agenda.take_due(now_ms, room))
        count = self._put_in_line(log, entries, now_ms, is_waiting=False)
        return (len(entries) == room or count < len(entries)) and self._has_room()

    def _put_in_line(
        self, log: ScheduleLog, entries: list[Entry], now_ms: int, *, is_waiting: bool
    ) -> int:
        """Read due messages and queue them; return how many could be read.

        Messages that are only on disk follow later, unless the caller waits for the disk.
        """
        numbers = [number for _, number in entries]
        messages, on_disk = self._read_all(log, numbers, now_ms, is_waiting=is_waiting)
        moved = log.agenda.moved
        for due_ms, number in entries:
            found = messages.get(number)
            if found is None:
                continue
            message, size = found
            due_now_ms = moved.get(number, message.due_ms) if moved else message.due_ms
            if due_now_ms > now_ms:
                # The bucket is less reliable than the log, whose due time wins: no release is
                # early.
                log.agenda.give_back(number, retry_ms=due_now_ms)
            else:
                self._route(Release(log, number, due_ms, message, size))
        if on_disk:
            self._fetch(log, [entry for entry in entries if entry[1] in on_disk])
        return len(messages)

    def _only_committed(self, log: ScheduleLog, entries: list[Entry]) -> list[Entry]:
        """Give back due messages that are not durable yet; a crash could undo them after a release.

        The log is skipped until they are committed.
        """
        mark = log.partition.high_watermark
        early = [number for _, number in entries if number >= mark]
        if not early:
            return entries
        for number in early:
            log.agenda.give_back(number)

        def committed(_: GoQueueError | None) -> None:
            self._committing.discard(log)
            self.wake()

        self._committing.add(log)
        log.partition.when_committed(max(early), committed)
        return [entry for entry in entries if entry[1] < mark]

    def _read_all(
        self, log: ScheduleLog, numbers: list[int], now_ms: int, *, is_waiting: bool
    ) -> tuple[dict[int, tuple[ScheduledMessage, int]], set[int]]:
        """Return messages and their sizes, and which are only on disk.

        At most as many as there is capacity for; the others are given back.
        """
        messages: dict[int, tuple[ScheduledMessage, int]] = {}
        on_disk: set[int] = set()
        room = BYTES_MAX - self._bytes
        searches_max = log.search_count + SEARCHES_MAX
        for number in sorted(numbers):  # Messages of one batch are then found in one pass.
            if room <= 0 or log.search_count >= searches_max:
                log.agenda.give_back(number)
                continue
            try:
                message = self._read(log, number, now_ms, is_waiting=is_waiting)
            except OnDisk:
                on_disk.add(number)
                continue
            if message is not None:
                size = message_size(message)
                messages[number] = (message, size)
                room -= size
        return messages, on_disk

    def _read(
        self, log: ScheduleLog, number: int, now_ms: int, *, is_waiting: bool
    ) -> ScheduledMessage | None:
        try:
            message = log.read(number, is_waiting=is_waiting)
        except (CorruptBatch, GoQueueError) as error:
            _log.error("the message %d in %s is delayed: %s", number, log.partition.name, error)
            log.agenda.give_back(number, retry_ms=now_ms + UNREADABLE_RETRY_MS)
            return None
        if message is None:
            # Compaction removes a message only after its end, so it has ended.
            _log.warning("the message %d in %s is gone", number, log.partition.name)
            log.agenda.end(number, is_released=False)
        return message

    def _fetch(self, log: ScheduleLog, entries: list[Entry]) -> None:
        """Read messages into memory in a thread, because the event loop must not wait for the disk.

        The log is skipped until they are loaded.
        """

        def fetched(_: object, error: Exception | None) -> None:
            if error is not None and not isinstance(error, OSError):
                raise error
            # If the thread could not read the disk, this read reports the error.
            self._fetching.discard(log)
            if self._stopped is None:
                self._put_in_line(log, entries, self._clock.wall_ms(), is_waiting=True)
                self.wake()

        self._fetching.add(log)
        self._clock.run_blocking(log.fetch([number for _, number in entries]), fetched)

    def _route(self, release: Release) -> None:
        message = release.message
        topic = self._topics.find_by_id(message.topic_id)
        if topic is not None and not release.reason:
            if message.key is None and topic.settings.log.is_compacting:
                self._discard(release, "key_missing")
                return
            self._line_up(topic, release)
        else:
            self._discard(release, release.reason or "topic_deleted")

    def _discard(self, release: Release, reason: str) -> None:
        """Dead-letter a message that cannot be delivered, or drop it."""
        name = release.message.topic
        dead_letters = self._topics.find(name + DEAD_LETTER_SUFFIX)
        if dead_letters is not None:
            self._line_up(dead_letters, release._replace(reason=reason))
            return
        _log.warning(
            "a message scheduled for topic %s at %d ms is dropped (%s), because there is no topic "
            "%s%s for it",
            name,
            release.due_ms,
            reason,
            name,
            DEAD_LETTER_SUFFIX,
        )
        try:
            release.log.end([release.number], is_released=False)
            self.dropped += 1
        except GoQueueError:
            retry_ms = self._clock.wall_ms() + RETRY_MS
            release.log.agenda.give_back(release.number, retry_ms=retry_ms)

    def _line_up(self, topic: Topic, release: Release) -> None:
        message = release.message
        number = message.partition
        if not 0 <= number < len(topic.partitions):
            if message.key is not None:
                number = partition_of_key(message.key, len(topic.partitions))
            else:
                number = release.number % len(topic.partitions)
        self._lane(topic, number).waiting.append(release)
        self._messages += 1
        self._bytes += release.size

    def _lane(self, topic: Topic, number: int) -> Lane:
        lane = self._lanes.get((topic.id, number))
        if lane is None:
            lane = self._lanes[topic.id, number] = Lane(topic, topic.partitions[number])
        return lane

    def _is_gone(self, lane: Lane) -> bool:
        return lane.partition.is_gone

    # Sending

    def _send(self, lane: Lane) -> None:
        if lane.is_busy or not lane.waiting:
            if self._is_gone(lane) and not lane.is_busy:
                del self._lanes[lane.key]
            return
        batch, early = lane.take_batch(self._clock.wall_ms())
        self._leave(early)
        for release in early:
            release.log.agenda.give_back(release.number)
        if batch:
            self._dispatch(lane, batch)

    def _dispatch(self, lane: Lane, batch: list[Release]) -> None:
        try:
            last_offset = self._append(lane, batch)
        except GoQueueError:
            self._leave(batch)
            self._put_off(lane, batch)
            return
        lane.is_busy = True
        lane.sequence = add_sequence(lane.sequence, len(batch))
        lane.partition.when_committed(
            last_offset, lambda error: self._committed(lane, batch, error)
        )

    def _append(self, lane: Lane, batch: list[Release]) -> int:
        """Append a batch to its partition; return the offset to wait for."""
        partition, producer = lane.partition, self._producer
        assert producer is not None
        if partition.failure is not None:
            raise partition.failure
        now_ms = self._clock.wall_ms()
        identity = ProducerIdentity(producer.producer_id, producer.epoch)
        encoded = release_batch(
            lane, batch, self._ids, identity, base_sequence=lane.sequence, now_ms=now_ms
        )
        earlier = partition.producers.check(read_header(encoded))
        assert earlier is None, "a sequence number is used once"
        # The size limit was checked on arrival; the schedule id makes the message a little larger.
        is_append_time = partition.settings.is_append_time
        view = memoryview(encoded)
        return partition.write(view, now_ms=now_ms, is_append_time=is_append_time).last_offset

    def _put_off(self, lane: Lane, batch: Iterable[Release]) -> None:
        """Retry later where a partition cannot be written to, or elsewhere if it is gone."""
        retry_ms = self._clock.wall_ms() + RETRY_MS
        for release in batch:
            release.log.agenda.give_back(release.number, retry_ms=retry_ms)
        self._give_back(lane, retry_ms=retry_ms)
        if self._is_gone(lane):
            self._lanes.pop(lane.key, None)

    def _give_back(self, lane: Lane, *, retry_ms: int | None = None) -> None:
        self._leave(lane.waiting)
        for release in lane.waiting:
            release.log.agenda.give_back(release.number, retry_ms=retry_ms)
        lane.waiting.clear()

    def _leave(self, releases: Iterable[Release]) -> None:
        for release in releases:
            self._messages -= 1
            self._bytes -= release.size

    def _committed(self, lane: Lane, batch: list[Release], error: GoQueueError | None) -> None:
        if error is None:
            self._note(batch)
            self._finish_soon(lane, batch)
            return
        # The partition accepts nothing more until a restart, so nothing can be released twice: the
        # next start reads what it holds. If it was deleted, its records are gone.
        lane.is_busy = self.is_clean = False
        self._leave(batch)
        self._put_off(lane, batch)
        self._check_stopped()

    def _finish_soon(self, lane: Lane, batch: list[Release]) -> None:
        self._finishing.append((lane, batch))
        if self._stopped is not None:
            self._clock.call_soon(self._finish)
        elif lane.waiting or not self._has_room():
            self.wake()
        else:
            # The records of their ends then share a sync with the next batches.
            self.wake_at(self._clock.wall_ms() + TURN_PAUSE_MS)

    def _finish(self) -> None:
        """Record in the schedule logs the releases that are committed."""
        finishing, self._finishing = self._finishing, []
        failed = self._mark_released(finishing)
        for lane, batch in finishing:
            if failed and not failed.isdisjoint(one.log for one in batch):
                self._finish_later(lane, batch)
                continue
            self._leave(batch)
            lane.is_busy = False
        self._check_stopped()

    def _mark_released(self, finishing: list[tuple[Lane, list[Release]]]) -> set[ScheduleLog]:
        """Store the ends of messages; return the logs where that failed."""
        by_log: dict[ScheduleLog, list[int]] = {}
        for _, batch in finishing:
            for release in batch:
                log = release.log
                if log in by_log:
                    by_log[log].append(release.number)
                else:
                    by_log[log] = [release.number]
        failed = set()
        for log, numbers in by_log.items():
            try:
                log.end(numbers, is_released=True)
            except GoQueueError as error:
                _log.warning("releases cannot be recorded yet: %s", error)
                failed.add(log)
        return failed

    def _finish_later(self, lane: Lane, batch: list[Release]) -> None:
        """Hold the next batch until this one's end is written, or a crash could hide this one."""
        if self._stopped is None:
            self._clock.call_later(RETRY_MS, lambda: self._finish_soon(lane, batch))
        else:
            self.is_clean = lane.is_busy = False  # The next start will find them.

    def _note(self, batch: list[Release]) -> None:
        now_ms = self._clock.wall_ms()
        self.lateness.note([now_ms - release.due_ms for release in batch])
        self.dead_lettered += sum(1 for release in batch if release.reason)
