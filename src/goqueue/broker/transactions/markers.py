"""Markers: delivers the end of a transaction to its participating partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from goqueue.broker.replication.leaders import Leaders, Marker
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    FencedProducer,
    GoQueueError,
    NotLeader,
    TransactionCoordinatorFenced,
    UnknownPartition,
    UnknownTopicId,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition import Appended, Partition

RETRY_MS = 1000  # after a refusal; attempts continue for as long as the node runs
MOVED_RETRY_MS = 100  # when the partition has another leader, or is about to
TAKEN_MAX = 100_000  # markers remembered; the oldest is forgotten first

_log = logging.getLogger(__name__)

OnEnd = Callable[[Partition, int, bool, int], None]
Marked = Callable[[GoQueueError | None], None]


class Ending(NamedTuple):
    """How a transaction ends, and which coordinator decided it.

    A coordinator numbers the transactions that it ends. Its epoch and that number distinguish a
    late marker from the one that ends the producer's next transaction, which may have the same
    producer epoch.
    """

    identity: ProducerIdentity
    is_commit: bool
    coordinator_epoch: int
    turn: int


@dataclass(slots=True)
class _Taken:
    """The newest marker that a partition has accepted for a producer."""

    leader_epoch: int
    coordinator_epoch: int
    turn: int
    appended: Appended
    is_told: bool = False


class Markers:
    """Writes markers, and notifies the owners of internal topics when each is committed."""

    def __init__(self, clock: Clock, topics: Topics, leaders: Leaders) -> None:
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._taken: dict[tuple[TopicPartition, int], _Taken] = {}
        self.on_end: dict[str, OnEnd] = {}
        leaders.mark = self._mark

    def drive(
        self,
        name: TopicPartition,
        ending: Ending,
        *,
        done: Callable[[], None],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """End a transaction in one partition, retrying without limit; then call `done`.

        A partition that no longer exists has nothing to end. One with a later epoch, of the
        producer or of its coordinator, has been fenced by a newer decision. Stop when `is_over`:
        another node has taken over.
        """

        def marked(_: Appended | None, error: Exception | None) -> None:
            if is_over():
                return
            if error is None or self._find(name) is None:
                done()
            elif isinstance(error, FencedProducer | TransactionCoordinatorFenced):
                _log.warning("%s refuses a marker, for good: %s", name, error)
                done()
            elif isinstance(error, NotLeader | UnknownTopicId | UnknownPartition):
                # The other node may apply the metadata of a topic or its leader a little later than
                # this one.
                self._clock.call_later(MOVED_RETRY_MS, attempt)
            elif isinstance(error, GoQueueError):
                _log.warning("%s refuses a marker; it will be sent again: %s", name, error)
                self._clock.call_later(RETRY_MS, attempt)
            else:
                raise error

        def attempt() -> None:
            if is_over():
                return
            topic = self._find(name)
            if topic is None:
                done()
            else:
                self._send(topic, name.partition, ending).then(marked)

        attempt()

    def _send(self, topic: Topic, number: int, ending: Ending) -> Promise[Appended]:
        """Make one attempt."""
        marker = Marker(
            topic.id,
            number,
            ending.identity.producer_id,
            ending.identity.epoch,
            ending.is_commit,
            ending.coordinator_epoch,
            ending.turn,
            self._leaders.epoch_of(topic, number),
        )
        return self._leaders.end_transaction(topic, marker, timeout_ms=0)

    # On the partition's node

    def _mark(self, partition: Partition, marker: Marker) -> Promise[Appended]:
        """End a transaction for its coordinator, in a partition that this node leads."""
        if marker.leader_epoch != partition.leader_epoch:
            # Markers sent in an earlier term of leadership are no longer remembered; one might be
            # applied twice.
            raise NotLeader(partition.name, -1)
        place = (partition.name, marker.producer_id)
        taken = self._taken.get(place)
        if taken is not None and taken.leader_epoch == partition.leader_epoch:
            mine = (marker.coordinator_epoch, marker.turn)
            newest = (taken.coordinator_epoch, taken.turn)
            if mine < newest:
                raise TransactionCoordinatorFenced(
                    f"This end of a transaction of producer {marker.producer_id} in "
                    f"{partition.name} arrived after the end of a later one."
                )
            if mine == newest:
                return self._committed(partition, marker, taken)
        appended = self._append(partition, marker)
        taken = _Taken(
            partition.leader_epoch, marker.coordinator_epoch, marker.turn, appended, is_told=False
        )
        self._taken.pop(place, None)
        self._taken[place] = taken
        if len(self._taken) > TAKEN_MAX:
            del self._taken[next(iter(self._taken))]
        return self._committed(partition, marker, taken)

    def _append(self, partition: Partition, marker: Marker) -> Appended:
        return partition.append_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            now_ms=self._clock.wall_ms(),
        )

    def _committed(self, partition: Partition, marker: Marker, taken: _Taken) -> Promise[Appended]:
        promise: Promise[Appended] = Promise()

        def committed(error: GoQueueError | None) -> None:
            if error is None and not taken.is_told:
                taken.is_told = True
                last_offset = taken.appended.last_offset
                self._tell(partition, marker.producer_id, marker.is_commit, last_offset)
            promise.settle(None if error else taken.appended, error)

        partition.when_committed(taken.appended.last_offset, committed)
        return promise

    def write(self, partition: Partition, ending: Ending, *, marked: Marked) -> None:
        """Append one marker here; `marked` is called when it is committed, or with the error."""
        identity, is_commit = ending.identity, ending.is_commit

        def committed(error: GoQueueError | None) -> None:
            if error is None:
                self._tell(partition, identity.producer_id, is_commit, appended.last_offset)
            marked(error)

        try:
            appended = partition.append_marker(
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                is_commit=is_commit,
                coordinator_epoch=ending.coordinator_epoch,
                now_ms=self._clock.wall_ms(),
            )
        except GoQueueError as error:
            marked(error)
            return
        partition.when_committed(appended.last_offset, committed)

    def _tell(self, partition: Partition, producer_id: int, is_commit: bool, offset: int) -> None:
        owner = self.on_end.get(partition.name.topic)
        if owner is not None:
            owner(partition, producer_id, is_commit, offset)

    def _find(self, name: TopicPartition) -> Topic | None:
        topic = self._topics.find(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return None
        return topic
