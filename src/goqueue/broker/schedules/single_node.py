"""All partitions of schedules on a single node: loaded at start, and released from."""

from __future__ import annotations

import logging
from collections.abc import Callable

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.schedules.recovery import end_released
from goqueue.broker.schedules.release import RETRY_MS, Releaser
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery.schedules import ScheduleIds
from goqueue.loop.clock import Clock
from goqueue.model.errors import GoQueueError
from goqueue.model.names import SCHEDULED_TOPIC
from goqueue.storage.disk import Disk

PRODUCER_NAME = "schedules"

_log = logging.getLogger(__name__)


class ScheduleAlone:
    """The schedule logs and their releaser."""

    def __init__(
        self,
        clock: Clock,
        disk: Disk,
        topics: Topics,
        *,
        partition_count: int,
        is_full: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._topics = topics
        self._partition_count = partition_count
        self._is_full = is_full
        self.logs: list[ScheduleLog] = []
        self.ids = ScheduleIds(b"")
        self.releaser: Releaser | None = None
        self._producer: NamedProducer | None = None
        self._is_stopped = False
        topics.internal.on_made(SCHEDULED_TOPIC, self._host)

    def open(self) -> None:
        """Load waiting messages; the topic is created with the first message."""
        topic = self._topics.find(SCHEDULED_TOPIC)
        if topic is not None:
            self._host(topic)

    def ensure(self) -> None:
        """Create the internal topic if missing; it is usable at once.

        There is no wait for its durability: the first message is committed together with it.
        """
        self._topics.internal.make(SCHEDULED_TOPIC)

    def stop(self, done: Callable[[], None], flush: Callable[[Callable[[], None]], None]) -> None:
        """Finish releases in progress, and write checkpoints for a fast start."""
        self._is_stopped = True
        if self.releaser is None:
            done()
            return
        releaser = self.releaser

        def save(index: int) -> None:
            if index == len(self.logs):
                done()
                return
            is_clean = releaser.is_clean and self._producer is not None
            epoch = self._producer.epoch if is_clean and self._producer is not None else -1
            self.logs[index].save(lambda: save(index + 1), clean_epoch=epoch)

        releaser.stop(lambda: flush(lambda: save(0)))

    def _host(self, topic: Topic) -> None:
        self.ids = ScheduleIds(topic.id)
        for partition in topic.partitions:
            log = ScheduleLog(self._clock, self._disk, partition, topic_id=topic.id)
            log.observer = self._topics.observer
            log.load()
            self.logs.append(log)
        self.releaser = Releaser(
            self._clock, self._topics, self.logs, self.ids, is_full=self._is_full
        )
        self._begin()

    def _begin(self) -> None:
        """Recover earlier releases, then become the producer for new ones."""
        if self._is_stopped:
            return
        before = self._topics.facts.producer_named(PRODUCER_NAME)
        is_clean = before is not None and all(log.clean_epoch == before.epoch for log in self.logs)
        try:
            if before is not None and not is_clean:
                end_released(self._topics, self.logs, self.ids, before)
            taken = self._topics.facts.take_over_producer(PRODUCER_NAME)
        except GoQueueError as error:
            _log.error("nothing can be released yet: %s", error)
            self._clock.call_later(RETRY_MS, self._begin)
            return
        taken.then(self._taken_over)

    def _taken_over(self, producer: NamedProducer | None, error: Exception | None) -> None:
        if producer is None:
            _log.error("nothing can be released yet: %s", error)
            self._clock.call_later(RETRY_MS, self._begin)
            return
        assert self.releaser is not None
        self._producer = producer
        self.releaser.start(producer)
