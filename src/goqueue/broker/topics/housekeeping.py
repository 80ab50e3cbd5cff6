"""Periodic tasks: retention, expiry of producers, checks of disk space, and key filters."""

from __future__ import annotations

import logging
from functools import partial

from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.topics.key_filtering import KeyFilterBuilder
from goqueue.broker.topics.topics import Topics
from goqueue.config import ProducerSettings, StorageSettings
from goqueue.loop.clock import Clock, Handle, earlier_ms
from goqueue.model.errors import GoQueueError
from goqueue.partition import Partition
from goqueue.storage.disk import Disk
from goqueue.storage.retention import is_active_expired
from goqueue.storage.segment import Segment

SPACE_CHECK_MS = 1000
RESERVE_STEP_BYTES = 64 << 10  # smaller differences are not worth reserving

_log = logging.getLogger(__name__)


class Upkeep:
    """Runs on timers; `is_full` is whether writes must wait for disk space."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        topics: Topics,
        flusher: Flusher,
        storage: StorageSettings,
        producers: ProducerSettings,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._topics = topics
        self._flusher = flusher
        self._storage = storage
        self._producers = producers
        self._timers: dict[str, Handle] = {}
        self._key_filters = KeyFilterBuilder(clock, topics)
        self.is_full = False
        self._is_reserving = False

    def start(self) -> None:
        self.check_space()
        self._again("space", SPACE_CHECK_MS, self.check_space)
        self._again("retention", self._storage.retention_check_ms, self.apply_retention)
        self._key_filters.start()

    def stop(self) -> None:
        self._key_filters.stop()
        for timer in self._timers.values():
            timer.cancel()

    def check_space(self) -> None:
        """Refuse writes while disk space is low, and accept them again as soon as it is not."""
        free, held = self._disk.free_bytes(), self._disk.reserve_bytes()
        # The reserve used by a start is restored before writes are accepted.
        lacking = max(0, self._storage.reserve_bytes - held)
        is_full = free - lacking < self._storage.free_bytes_min
        if is_full and not self.is_full:
            _log.error("only %d bytes are free on the disk: writes are refused", free)
        elif self.is_full and not is_full:
            _log.info("there is room on the disk again: writes are accepted")
        self.is_full = is_full
        self._keep_reserve(free, held)

    def _keep_reserve(self, free: int, held: int) -> None:
        """Restore the reserve that a start has used, as far as there is space for it.

        Half of the free space is left for what a node on a full disk still has to write.
        """
        wanted, room = self._storage.reserve_bytes, held + free
        may_have = room // 2 if self.is_full else room - self._storage.free_bytes_min
        size = min(wanted, may_have)
        is_worth_it = size > held + RESERVE_STEP_BYTES or size == wanted != held
        if is_worth_it and not self._is_reserving:
            self._is_reserving = True
            self._clock.run_blocking(partial(self._disk.set_reserve, size), self._reserved)

    def _reserved(self, _: object, error: Exception | None) -> None:
        self._is_reserving = False
        if error is not None:
            _log.warning("no disk space could be reserved: %s", error)

    def apply_retention(self) -> None:
        now_ms = earlier_ms(self._clock)
        for topic in self._topics:
            for one in topic.partitions:
                try:
                    self._expire(one, now_ms)
                except (OSError, GoQueueError) as error:
                    _log.error("%s: retention is delayed: %s", one.name, error)

    def _expire(self, one: Partition, now_ms: int) -> None:
        if len(one.producers):
            one.history.expire_producers(
                before_ms=now_ms - self._producers.id_expiry_ms,
                states_max=self._producers.states_per_partition_max,
            )
        log = one.log
        if not log.active.size and len(log.segments) == 1:
            return
        is_active_old = log.start_offset >= log.end_offset or is_active_expired(log, now_ms)
        may_roll = not one.is_following and one.high_watermark == log.end_offset
        if is_active_old and log.active.size and may_roll:
            log.roll(now_ms=now_ms)
            self._flusher.mark(one)
        expired = one.retention.take_expired(now_ms=now_ms)
        if expired:
            _log.info("%s: retention removes %d segment(s)", one.name, len(expired))
            self._clock.run_blocking(partial(_remove, expired), _removed)

    def _again(self, name: str, delay_ms: int, action: object) -> None:
        def run() -> None:
            # Set the next timer first: one failure of the disk must not stop housekeeping for good.
            self._timers[name] = self._clock.call_later(delay_ms, run)
            assert callable(action)
            action()

        self._timers[name] = self._clock.call_later(delay_ms, run)


def release_reserve(disk: Disk, storage: StorageSettings) -> None:
    """Before a start: free the reserve for it, if there is no other space."""
    held, free = disk.reserve_bytes(), disk.free_bytes()
    if held and free < storage.reserve_bytes:
        _log.error(
            "only %d bytes are free on the disk: the start uses the %d reserved for it",
            free,
            held,
        )
        disk.set_reserve(0)


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove()


def _removed(_: object, error: Exception | None) -> None:
    if error is not None:
        _log.error("an expired segment could not be removed: %s", error)
