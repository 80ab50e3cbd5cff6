"""Markers: how the end of a transaction reaches the partitions that took part in it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from goqueue.broker.scheduler import Scheduler
from goqueue.broker.topics import Topics
from goqueue.model.errors import FencedProducer, GoQueueError, TransactionCoordinatorFenced
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition import Partition

RETRY_MS = 1000  # a partition that refuses is asked again, for as long as the node runs

_log = logging.getLogger(__name__)

OnEnd = Callable[[Partition, int, bool], None]
Marked = Callable[[GoQueueError | None], None]


class Markers:
    """Writes markers, and tells the owners of internal topics of each that is committed."""

    def __init__(self, scheduler: Scheduler, topics: Topics) -> None:
        self._scheduler = scheduler
        self._topics = topics
        self.on_end: dict[str, OnEnd] = {}

    def drive(
        self,
        name: TopicPartition,
        identity: ProducerIdentity,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        done: Callable[[], None],
    ) -> None:
        """End a transaction in one partition, however long it takes; then call `done`.

        A partition that no longer exists has nothing left to end. One that knows a later epoch has
        been told by somebody with a better claim.
        """

        def marked(error: GoQueueError | None) -> None:
            if error is None or self._find(name) is None:
                done()
            elif isinstance(error, FencedProducer | TransactionCoordinatorFenced):
                _log.warning("%s refuses a marker, for good: %s", name, error)
                done()
            else:
                _log.warning("%s refuses a marker; it will be asked again: %s", name, error)
                self._scheduler.call_later(RETRY_MS, attempt)

        def attempt() -> None:
            partition = self._find(name)
            if partition is None:
                done()
            else:
                self.write(
                    partition,
                    identity,
                    is_commit=is_commit,
                    coordinator_epoch=coordinator_epoch,
                    marked=marked,
                )

        attempt()

    def write(
        self,
        partition: Partition,
        identity: ProducerIdentity,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        marked: Marked,
    ) -> None:
        """Append one marker; `marked` is told when it is committed, or why it is not."""
        try:
            appended = partition.append_marker(
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                now_ms=self._scheduler.now_ms(),
            )
        except GoQueueError as error:
            marked(error)
            return
        committed = partial(self._committed, partition, identity.producer_id, is_commit, marked)
        partition.when_committed(appended.last_offset, committed)

    def _committed(
        self,
        partition: Partition,
        producer_id: int,
        is_commit: bool,
        marked: Marked,
        error: GoQueueError | None,
    ) -> None:
        if error is None:
            owner = self.on_end.get(partition.name.topic)
            if owner is not None:
                owner(partition, producer_id, is_commit)
        marked(error)

    def _find(self, name: TopicPartition) -> Partition | None:
        topic = self._topics.find(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return None
        return topic.partitions[name.partition]
