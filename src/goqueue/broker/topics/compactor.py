"""Compaction in the background: one log at a time, in small steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from goqueue.broker.durability.flusher import Flusher
from goqueue.broker.topics.topics import Topics
from goqueue.config import CompactionSettings
from goqueue.loop.clock import Clock, Handle, earlier_ms
from goqueue.model.errors import InvalidRequest, StorageFailed
from goqueue.partition import Partition
from goqueue.storage.compaction import Compaction, CompactionPlan, plan_compaction
from goqueue.storage.disk import Disk
from goqueue.storage.retention import is_roll_due

# A step holds the interpreter lock, so steps are small, with pauses as long for others.
STEP_BYTES = 256 << 10
PAUSE_MS = 5

_log = logging.getLogger(__name__)


class Compactor:
    """Selects logs worth compacting, and compacts them."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        topics: Topics,
        flusher: Flusher,
        settings: CompactionSettings,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._topics = topics
        self._flusher = flusher
        self._settings = settings
        self._timer: Handle | None = None
        self._current: Compaction | None = None
        self._requested: dict[Partition, None] = {}
        self._last: Partition | None = None
        self._cleaned_before = 0  # the cleaned offset of that partition before its pass
        self._is_stepping = False
        self._is_stopping = False
        self._stopped: Callable[[], None] | None = None
        # Called with every partition that was compacted.
        self.compacted: Callable[[Partition], None] = lambda partition: None
        self.passes = 0
        self.bytes_before = 0
        self.bytes_after = 0

    def start(self) -> None:
        if self._settings.enabled:
            self._timer = self._clock.call_later(self._settings.check_ms, self._look)

    def stop(self, done: Callable[[], None]) -> None:
        """Stop after the current step, if one is running."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._is_stepping:
            self._stopped = done
            return
        if self._current is not None:
            self._current.abandon()
        done()

    def request(self, partitions: Iterable[Partition]) -> None:
        """Compact these next, however little there is to gain."""
        if not self._settings.enabled:
            raise InvalidRequest(
                "Compaction is disabled on this node (setting compaction.enabled)."
            )
        now_ms = earlier_ms(self._clock)
        for partition in partitions:
            if partition.failure is None and partition.log.active.size:
                try:
                    partition.log.roll(now_ms=now_ms)
                except OSError as error:
                    raise StorageFailed(
                        f"{partition.name} cannot be compacted now: {error.strerror}; retry."
                    ) from error
                self._flusher.mark(partition)
            self._requested[partition] = None
        # Only synced segments can be rewritten, and in some modes a sync would take a while.
        self._flusher.flush_now(self._look_now)

    def _look_now(self) -> None:
        if self._current is None and self._timer is not None and not self._is_stopping:
            self._timer.cancel()
            self._look()

    def _look(self) -> None:
        """Begin with the next log that is due; if there is none, check again later."""
        now_ms = earlier_ms(self._clock)
        for partition in [*self._requested, *self._in_turn()]:
            if not partition.log.settings.is_compacting or partition.failure is not None:
                self._requested.pop(partition, None)
                continue
            try:
                plan = self._plan(partition, now_ms)
            except OSError as error:
                _log.error("%s: compaction is delayed: %s", partition.name, error)
                continue
            if plan is not None:
                self._current = Compaction(
                    self._disk,
                    plan,
                    last_offsets=partition.producers.last_offsets(),
                    marker_offsets=partition.producers.marker_offsets(),
                    map_bytes_max=self._settings.map_bytes_max,
                    step_bytes=STEP_BYTES,
                )
                self._last, self._cleaned_before = partition, partition.log.cleaned_offset
                self._begin(partition, self._current)
                return
        self._timer = self._clock.call_later(self._settings.check_ms, self._look)

    def _in_turn(self) -> list[Partition]:
        """All logs, starting after the one compacted last, in rotation."""
        partitions = list(self._topics.partitions())
        if self._last is None or self._last not in partitions:
            return partitions
        after = partitions.index(self._last) + 1
        return partitions[after:] + partitions[:after]

    def _begin(self, partition: Partition, compaction: Compaction) -> None:
        """Drop the segments from the commit journal first: a crash would replay it over them."""

        def cleared(is_clear: bool) -> None:
            if self._is_stopping:
                return
            if is_clear:
                self._step(partition, compaction)
            else:
                _log.warning("%s: compaction is delayed until the next start", partition.name)
                compaction.abandon()
                self._current = None

        self._flusher.clear_journal(cleared)

    def _plan(self, partition: Partition, now_ms: int) -> CompactionPlan | None:
        log = partition.log
        if is_roll_due(log, now_ms):
            log.roll(now_ms=now_ms)
            self._flusher.mark(partition)
        is_forced = partition in self._requested and not log.has_unsealed
        if is_forced:
            del self._requested[partition]
        return plan_compaction(
            log, now_ms=now_ms, until_offset=partition.last_stable_offset, is_forced=is_forced
        )

    def _step(self, partition: Partition, compaction: Compaction) -> None:
        def done(_: object, error: Exception | None) -> None:
            self._is_stepping = False
            if error is not None:
                _log.error("compacting %s failed", partition.name, exc_info=error)
                compaction.abandon()
            elif self._stopped is not None or partition.is_gone:
                compaction.abandon()
            else:
                self._apply(partition, compaction)
            if self._stopped is not None:
                self._stopped()
            elif compaction.is_done:
                self._finish(partition, compaction)
            else:
                self._timer = self._clock.call_later(
                    PAUSE_MS, lambda: self._step(partition, compaction)
                )

        self._is_stepping = True
        self._clock.run_blocking(compaction.step, done)

    def _apply(self, partition: Partition, compaction: Compaction) -> None:
        try:
            compaction.apply(partition.log)
        except OSError as error:
            _log.error("compacting %s failed: %s", partition.name, error)
            compaction.abandon()

    def _finish(self, partition: Partition, compaction: Compaction) -> None:
        for report in compaction.reports:
            _log.warning("%s", report)
        if compaction.bytes_before:
            _log.info(
                "%s: compaction made %d of %d bytes",
                partition.name,
                compaction.bytes_after,
                compaction.bytes_before,
            )
        self.passes += 1
        self.compacted(partition)
        self.bytes_before += compaction.bytes_before
        self.bytes_after += compaction.bytes_after
        self._current = None
        # Others may be due as well, so check at once. A pass without progress would only repeat.
        has_advanced = partition.log.cleaned_offset > self._cleaned_before
        pause_ms = PAUSE_MS if self._requested or has_advanced else self._settings.check_ms
        self._timer = self._clock.call_later(pause_ms, self._look)
