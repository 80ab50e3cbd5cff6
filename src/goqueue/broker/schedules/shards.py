"""The partitions of schedules that this node leads: each is loaded, released from, and closed.

A new leader replays the partition to its end, a piece at a time: the leader's log is authoritative.
Then it becomes the producer of that partition in a new epoch, finishes the releases its predecessor
began, and releases what is due. A leader that loses leadership stops at once.

A single node leads all partitions from its start, or from the creation of the topic. It loads them
before it serves, and releases from all of them as one producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.schedules.changes import ShardChanges
from goqueue.broker.schedules.checkpoints import Checkpoints
from goqueue.broker.schedules.courier import (
    RETRY_MS,
    Append,
    Intents,
    ReleaseCourier,
    ReleaseMetrics,
)
from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.release import Releaser
from goqueue.broker.schedules.replay import CommittedTransactions, replay
from goqueue.broker.shards.leadership import Unreadable
from goqueue.broker.topics.topics import Topics
from goqueue.config import ProducerSettings, ScheduleSettings
from goqueue.delivery.schedules import ScheduleIds
from goqueue.loop.clock import Clock, Handle, earlier_ms
from goqueue.loop.promise import Promise
from goqueue.model.errors import CoordinatorLoading, GoQueueError, UnsupportedVersion
from goqueue.model.names import SCHEDULED_TOPIC
from goqueue.model.observer import Observer
from goqueue.partition import Partition
from goqueue.storage.disk import Disk

CHECKPOINT_CHECK_MS = 1000
CHECKPOINT_RECORDS_MAX = 200_000  # replayed after a crash at most
FORGET_CHECK_MS = 60_000  # how often idle producers are expired
PRODUCER_NAME = "schedules"  # of a single node; in a cluster the partition's number is added

_log = logging.getLogger(__name__)


class ScheduleShard:
    """One partition that this node leads, from the start of its leadership to the end."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        partition: Partition,
        *,
        topic_id: bytes,
        observer: Observer | None,
    ) -> None:
        self.number = partition.name.partition
        self.log = ScheduleLog(clock, disk, partition, topic_id=topic_id, observer=observer)
        self.transactions = CommittedTransactions(clock, self.log)
        self.checkpoints = Checkpoints(
            clock, self.log, is_behind=lambda: self.transactions.is_behind
        )
        self.changes = ShardChanges(clock, self.log)
        self.releaser: Releaser | None = None  # None until the whole log has been replayed
        self._clock = clock

    @property
    def is_ready(self) -> bool:
        return self.releaser is not None

    def loading(self) -> Iterator[None]:
        """Build the agenda from the checkpoint and the records after it, in steps."""
        offset = self.checkpoints.restore()
        yield from replay(self.log, offset, now_ms=self._clock.wall_ms())

    def close(self) -> Promise[None]:
        """Stop; resolves when no file of the log is in use."""
        if self.releaser is not None:
            self.releaser.close()
            self.releaser = None
        self.log.is_closed = True
        if self.log.observation is not None:
            self.log.observation.close()
        self.changes.close()
        return self.checkpoints.close()


class ScheduleShards:
    """All partitions of schedules that this node leads."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        leaders: Leaders,
        settings: ScheduleSettings,
        producers: ProducerSettings,
        *,
        append: Append,
        is_full: Callable[[], bool],
    ) -> None:
        """`append` stores released messages at the leaders of their partitions."""
        self.owned: dict[int, ScheduleShard] = {}  # loaded or not
        self.metrics = ReleaseMetrics()
        self._clock = clock
        self._disk = disk
        self._topics = topics
        self._leaders = leaders
        self._settings = settings
        self._producers = producers
        self._append = append
        self._is_full = is_full
        self._closing: dict[int, Promise[None]] = {}
        self._releaser: Releaser | None = None  # of all partitions, on a single node
        self._forgotten_ms = clock.now_ms()
        self.on_unreadable: Unreadable = lambda partition, error: None
        self._timer: Handle = clock.call_later(CHECKPOINT_CHECK_MS, self._check_shards)

    def __iter__(self) -> Iterator[ScheduleShard]:
        """Those that are loaded."""
        return iter([shard for shard in self.owned.values() if shard.is_ready])

    def check_loaded(self) -> None:
        """Refuse calls about all partitions led here while some are still loading."""
        if not all(shard.is_ready for shard in self.owned.values()):
            raise CoordinatorLoading("Schedules are being loaded; retry.")

    def note_released(self) -> None:
        """Record releases that are committed, so that no count has what its topic has already."""
        for releaser in {shard.releaser for shard in self if shard.releaser is not None}:
            releaser.note_committed()

    # Leadership

    def lead(self, partition: Partition) -> None:
        """Own the messages of a partition that this node now leads."""
        shard = self._new_shard(partition)
        closing = self._closing.get(shard.number)
        if closing is None:
            self._load(shard)
        else:
            closing.then(lambda _, error: self._load(shard))

    def _new_shard(self, partition: Partition) -> ScheduleShard:
        topic_id, observer = self._topics.get(SCHEDULED_TOPIC).id, self._topics.observer
        shard = ScheduleShard(
            self._clock, self._disk, partition, topic_id=topic_id, observer=observer
        )
        shard.log.on_unreadable = lambda error: self.on_unreadable(partition, error)
        self.owned[shard.number] = shard
        return shard

    def resign(self, partition: Partition) -> None:
        """Give up a partition that this node no longer leads."""
        shard = self.owned.pop(partition.name.partition, None)
        if shard is not None:
            earlier = self._closing.get(shard.number)
            self._closing[shard.number] = _both(earlier, shard.close())

    def stop(self, done: Callable[[], None], flush: Callable[[Callable[[], None]], None]) -> None:
        """Release nothing more; on a single node, also write checkpoints for a fast start."""
        self._timer.cancel()
        if self._releaser is not None:
            shards = list(self.owned.values())
            self._releaser.stop(lambda: flush(lambda: self._save_clean(shards, done)))
        else:
            self._close_all(done)

    def _save_clean(self, shards: list[ScheduleShard], done: Callable[[], None]) -> None:
        """Write checkpoints that make it unnecessary to search topics at the next start."""
        if not shards:
            done()
            return
        assert self._releaser is not None
        shards[0].checkpoints.save(
            lambda: self._save_clean(shards[1:], done), clean_epoch=self._releaser.clean_epoch
        )

    def _close_all(self, done: Callable[[], None]) -> None:
        for shard in self.owned.values():
            self._closing[shard.number] = shard.close()
        left = [one for one in self._closing.values() if not one.is_done]
        count = len(left)

        def one_closed(_: None, error: Exception | None) -> None:
            nonlocal count
            count -= 1
            if not count:
                done()

        if not left:
            done()
        for one in left:
            one.then(one_closed)

    # Loading

    def _load(self, shard: ScheduleShard) -> None:
        """Replay the log, then release what is due."""
        steps = shard.loading()
        if self._leaders.is_alone:
            for _ in steps:
                pass
            self._loaded(shard)
        else:
            self._load_some(shard, steps)

    def _load_some(self, shard: ScheduleShard, steps: Iterator[None]) -> None:
        if shard.log.is_closed:
            return
        try:
            next(steps)
        except StopIteration:
            self._loaded(shard)
        except OSError as error:
            _log.error("%s cannot be read: %s", shard.log.partition.name, error)
            self._clock.call_later(RETRY_MS, partial(self._load_again, shard))
        except UnsupportedVersion as error:
            shard.log.on_unreadable(error)
        else:
            self._clock.call_soon(lambda: self._load_some(shard, steps))

    def _load_again(self, shard: ScheduleShard) -> None:
        if not shard.log.is_closed:
            shard.close()
            self._load(self._new_shard(shard.log.partition))

    def _loaded(self, shard: ScheduleShard) -> None:
        log = shard.log
        if log.is_closed:
            return
        if self._leaders.is_unfit(log.topic_id, log.number):
            # Messages in the hole would be lost, and messages cancelled in it would be released.
            _log.error("%s has a hole here; another node must release", log.partition.name)
            self._clock.call_later(RETRY_MS, partial(self._loaded, shard))
            return
        if not self._leaders.is_alone:
            intents = Intents(self._clock, log)
            releaser = self._new_releaser(f"{PRODUCER_NAME}/{log.number}", log.topic_id, intents)
        elif self._releaser is None:
            releaser = self._releaser = self._new_releaser(PRODUCER_NAME, log.topic_id, None)
        else:
            releaser = self._releaser
        shard.releaser = releaser
        releaser.add(log, clean_epoch=shard.checkpoints.clean_epoch)
        partition_count = len(self._topics.get(SCHEDULED_TOPIC).partitions)
        if releaser is not self._releaser or len(self.owned) == partition_count:
            releaser.open()

    def _new_releaser(self, name: str, topic_id: bytes, intents: Intents | None) -> Releaser:
        courier = ReleaseCourier(
            self._clock, self._topics, ScheduleIds(topic_id), self._append, self.metrics, intents
        )
        return Releaser(
            self._clock, self._topics, courier, producer_name=name, is_full=self._is_full
        )

    # Upkeep

    def _check_shards(self) -> None:
        self._timer = self._clock.call_later(CHECKPOINT_CHECK_MS, self._check_shards)
        if self._clock.now_ms() - self._forgotten_ms >= FORGET_CHECK_MS:
            self._forgotten_ms = self._clock.now_ms()
            self._forget_sources()
        for shard in self:
            shard.checkpoints.save_if_due(
                interval_ms=self._settings.checkpoint_ms, records_max=CHECKPOINT_RECORDS_MAX
            )

    def _forget_sources(self) -> None:
        """Expire idle producers of delayed records, as partitions expire theirs."""
        before_ms = earlier_ms(self._clock) - self._producers.id_expiry_ms
        for shard in self:
            try:
                shard.log.forget_sources(
                    before_ms=before_ms,
                    states_max=self._producers.states_per_partition_max,
                    is_known=lambda topic_id: self._topics.find_by_id(topic_id) is not None,
                )
            except GoQueueError as error:
                name = shard.log.partition.name
                _log.warning("%s: idle producers could not be expired yet: %s", name, error)


def _both(earlier: Promise[None] | None, later: Promise[None]) -> Promise[None]:
    """Resolves when both are: leadership may be lost twice before the first close completes."""
    if earlier is None or earlier.is_done:
        return later
    result: Promise[None] = Promise()
    earlier.then(lambda _, error: later.then(lambda _, error: result.resolve(None)))
    return result
