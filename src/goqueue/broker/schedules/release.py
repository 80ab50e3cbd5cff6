"""Releasing: due messages are taken from the schedule logs and appended to their topics.

A releaser wakes when the next message is due, reads what is due, finds the target partition of each
message and queues it there. The courier moves the queued messages, each exactly once, and limits
how many are in flight. In a cluster each partition of schedules has a releaser of its own, which
begins when this node leads the partition. A single node has one for all partitions, so that the
messages of all share batches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from goqueue.broker.schedules.courier import RETRY_MS, ReleaseCourier
from goqueue.broker.schedules.log import OnDisk, ScheduleLog
from goqueue.broker.schedules.replay import rebuild_buckets
from goqueue.broker.schedules.targets import BYTES_MAX, MESSAGES_MAX, Release, message_size
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery.schedules import DamagedBucket, Entry, ScheduledMessage
from goqueue.delivery.settings import DEAD_LETTER_SUFFIX
from goqueue.loop.clock import Clock, Handle
from goqueue.model.errors import CorruptBatch, GoQueueError
from goqueue.model.key_hash import partition_of_key

TAKE_MAX = 64  # of one log, per event-loop turn
SEARCHES_MAX = 8  # the same, for messages whose position has not been found since the start
UNREADABLE_RETRY_MS = 3_600_000
RUN_PAUSE_MS = 5  # messages due within it share batches and syncs
CASCADE_PAUSE_MS = 1  # between two blocks of entries, to yield to others
CLOCK_CHECK_MS = 1000  # the longest sleep, because the wall clock may jump

_log = logging.getLogger(__name__)


class Releaser:
    """Moves due messages from schedule logs to their topics, as one named producer."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        courier: ReleaseCourier,
        *,
        producer_name: str,
        is_full: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._courier = courier
        courier.owner = self
        self._producer_name = producer_name
        self._is_full = is_full
        self._logs: list[ScheduleLog] = []
        self._clean_epochs: set[int] = set()
        self._is_taking_over = False
        self._is_started = False
        self._is_stopped = False
        self._timer: Handle | None = None
        self._timer_ms = 0
        self._is_run_set = False
        self._committing: set[ScheduleLog] = set()
        self._fetching: set[ScheduleLog] = set()
        self._round = 0
        self._pause_until_ms = 0

    # Starting and stopping

    def add(self, log: ScheduleLog, *, clean_epoch: int) -> None:
        """Add a loaded log, whose checkpoint was written in a clean stop of the given epoch."""
        self._logs.append(log)
        self._clean_epochs.add(clean_epoch)
        log.on_due = self.wake_at

    def open(self) -> None:
        """Begin to release, once it is known what earlier releases have left."""
        if self._is_stopped:
            return
        before = self._topics.facts.producer_named(self._producer_name)
        is_clean = before is not None and self._clean_epochs == {before.epoch}
        try:
            self._courier.recover(self._logs, None if is_clean else before)
        except GoQueueError as error:
            _log.error("nothing can be released yet: %s", error)
            self._clock.call_later(RETRY_MS, self.open)
            return
        self.renew()

    def renew(self) -> None:
        """Take a new epoch of the producer, which fences earlier ones, and start with it."""
        if self._is_stopped or self._is_taking_over:
            return
        try:
            taken = self._topics.facts.take_over_producer(self._producer_name)
        except GoQueueError as error:
            self._taken_over(None, error)
            return
        self._is_taking_over = True
        taken.then(self._taken_over)

    def _taken_over(self, producer: NamedProducer | None, error: Exception | None) -> None:
        self._is_taking_over = False
        if self._is_stopped:
            return
        if producer is None:
            _log.warning("%s: nothing can be released yet: %s", self._producer_name, error)
            self._clock.call_later(RETRY_MS, self.renew)
            return
        self._courier.start(producer)
        self._is_started = True
        self.wake()

    def stop(self, done: Callable[[], None]) -> None:
        """Finish releases in flight, begin no more, then call `done`."""
        self._stop_runs()
        self._courier.stop(done)

    def close(self) -> None:
        """Release nothing more, because another node does."""
        self._stop_runs()
        self._courier.close()

    @property
    def clean_epoch(self) -> int:
        """The epoch of a producer that has stopped and left nothing unfinished; else -1."""
        return self._courier.clean_epoch

    def _stop_runs(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Runs

    def note_committed(self) -> None:
        """Record releases that are committed now, which otherwise have a short pause."""
        if not self._is_stopped:
            self._courier.note_committed()

    def wake(self) -> None:
        """Run soon: there may be something to do."""
        if not self._is_run_set and self._is_started and not self._is_stopped:
            self._is_run_set = True
            self._clock.call_soon(self._run)

    def wake_at(self, due_ms: int) -> None:
        """Run at a time when a message is due."""
        if self._timer is not None and due_ms < self._timer_ms:
            self._set_timer(due_ms)

    def _run(self) -> None:
        self._is_run_set = False
        if self._is_stopped:
            return
        now_ms = self._clock.wall_ms()
        self._courier.note_committed()
        is_cascading = False
        for log in self._logs:
            is_cascading |= self._advance(log, now_ms)
        if self._is_full():
            self._set_timer(now_ms + RETRY_MS)
            return
        is_pausing = 0 < self._pause_until_ms - now_ms <= RUN_PAUSE_MS
        has_more = not is_pausing and self._take_all(now_ms)
        self._courier.send_all()
        if has_more:
            self.wake()
        else:
            self._set_timer(now_ms + CASCADE_PAUSE_MS if is_cascading else self._next_ms(now_ms))

    def _next_ms(self, now_ms: int) -> int:
        """When the next run is due; at capacity, only after a release has finished."""
        has_room = self._courier.queues.has_room
        times = [
            log.agenda.timetable.next_ms()
            for log in self._logs
            if has_room and self._is_usable(log)
        ]
        pause_until_ms = min(self._pause_until_ms, now_ms + RUN_PAUSE_MS)
        return max(min(times, default=now_ms + CLOCK_CHECK_MS), pause_until_ms)

    def _is_usable(self, log: ScheduleLog) -> bool:
        is_idle = log not in self._committing and log not in self._fetching
        return is_idle and log.partition.failure is None

    def _advance(self, log: ScheduleLog, now_ms: int) -> bool:
        """Distribute a block of entries that are due soon; return whether there are more."""
        timetable = log.agenda.timetable
        try:
            timetable.advance(now_ms)
            if timetable.is_cascading:
                timetable.cascade()
        except (DamagedBucket, OSError) as error:
            _log.error("the buckets of %s are rebuilt: %s", log.partition.name, error)
            rebuild_buckets(log, now_ms=now_ms)
        return log.agenda.timetable.is_cascading

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        delay_ms = min(max(0, at_ms - self._clock.wall_ms()), CLOCK_CHECK_MS)
        self._timer = self._clock.call_later(delay_ms, self._run)

    # Selection

    def _take_all(self, now_ms: int) -> bool:
        """Queue due messages of all logs; return whether there may be more."""
        has_more, queues = False, self._courier.queues
        before = queues.messages
        self._round += 1
        usable = [log for log in self._logs if self._is_usable(log)]
        for index in range(len(usable)):
            has_more |= self._take(usable[(self._round + index) % len(usable)], now_ms)
        if queues.messages > before and not has_more:
            self._pause_until_ms = now_ms + RUN_PAUSE_MS
        return has_more

    def _take(self, log: ScheduleLog, now_ms: int) -> bool:
        """Queue due messages of one log; return whether there may be more."""
        queues = self._courier.queues
        if not queues.has_room:
            return False
        room = min(TAKE_MAX, MESSAGES_MAX - queues.messages)
        entries = log.agenda.take_due(now_ms, room)
        if not self._courier.announces:
            entries = self._only_committed(log, entries)
        # What is announced precedes its intent in the log, and is committed when the intent is.
        count = self._enqueue_due(log, entries, now_ms, may_block=False)
        return (len(entries) == room or count < len(entries)) and queues.has_room

    def _enqueue_due(
        self, log: ScheduleLog, entries: list[Entry], now_ms: int, *, may_block: bool
    ) -> int:
        """Read due messages and queue them; return how many could be read.

        Messages that are only on disk follow later, unless this `may_block`.
        """
        numbers = [number for _, number in entries]
        messages, on_disk = self._read_all(log, numbers, now_ms, may_block=may_block)
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
        self, log: ScheduleLog, numbers: list[int], now_ms: int, *, may_block: bool
    ) -> tuple[dict[int, tuple[ScheduledMessage, int]], set[int]]:
        """Return messages and their sizes, and which are only on disk.

        At most as many as there is capacity for; the others are given back.
        """
        messages: dict[int, tuple[ScheduledMessage, int]] = {}
        on_disk: set[int] = set()
        room = BYTES_MAX - self._courier.queues.bytes
        searches_max = log.search_count + SEARCHES_MAX
        for number in sorted(numbers):  # Messages of one batch are then found in one pass.
            if room <= 0 or log.search_count >= searches_max:
                log.agenda.give_back(number)
                continue
            try:
                message = self._read(log, number, now_ms, may_block=may_block)
            except OnDisk:
                on_disk.add(number)
                continue
            if message is not None:
                size = message_size(message)
                messages[number] = (message, size)
                room -= size
        return messages, on_disk

    def _read(
        self, log: ScheduleLog, number: int, now_ms: int, *, may_block: bool
    ) -> ScheduledMessage | None:
        try:
            message = log.read(number, may_block=may_block)
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
            if not self._is_stopped:
                self._enqueue_due(log, entries, self._clock.wall_ms(), may_block=True)
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
            self._enqueue(topic, release)
        else:
            self._discard(release, release.reason or "topic_deleted")

    def _discard(self, release: Release, reason: str) -> None:
        """Dead-letter a message that cannot be delivered, or drop it."""
        name = release.message.topic
        dead_letters = self._topics.find(name + DEAD_LETTER_SUFFIX)
        if dead_letters is not None:
            self._enqueue(dead_letters, release._replace(reason=reason))
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
            self._courier.metrics.dropped += 1
        except GoQueueError:
            retry_ms = self._clock.wall_ms() + RETRY_MS
            release.log.agenda.give_back(release.number, retry_ms=retry_ms)

    def _enqueue(self, topic: Topic, release: Release) -> None:
        message = release.message
        number = message.partition
        if not 0 <= number < len(topic.partitions):
            if message.key is not None:
                number = partition_of_key(message.key, len(topic.partitions))
            else:
                number = release.number % len(topic.partitions)
        self._courier.queues.enqueue(topic, number, release)
