"""Moves messages from one log to another, each exactly once.

A move has three steps. First the mover writes its intent ahead, in a log of its own: which messages
go where, and the numbers of their batch, which are its producer's id and epoch and its first
sequence number. When that is committed, the courier sends the batch under these numbers until the
target partition has it; the partition recognises a duplicate by the numbers. Then the mover notes
in its log that the move is done. Whoever finds an intent without that note, after a crash or a
change of leaders, sends the same batch under the same numbers again.

A former owner of the mover's state can repeat its last batches, but begins none, because it cannot
commit another intent. The numbers are not reused, because every owner writes as a producer of its
own: one with a new id, or a named one in a new epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.model.batch import Record, add_sequence, encode_batch
from goqueue.model.errors import DuplicateSequence, GoQueueError, NotCoordinator, UnknownTopicId
from goqueue.model.names import ProducerIdentity

# After this time a batch is sent again, unless the move is over or the topic gone.
APPEND_TIMEOUT_MS = 5_000

_log = logging.getLogger(__name__)


class BatchNumbers(NamedTuple):
    """The partition that a batch goes to, and the numbers by which it recognises a duplicate."""

    topic_id: bytes
    partition: int
    producer: ProducerIdentity
    sequence: int  # of the first record


class Courier:
    """Stores batches as one producer, for the owner of a mover's state.

    Several partitions may get their batches at the same time, each of them one after the other.
    """

    def __init__(
        self,
        topics: Topics,
        leaders: Leaders,
        *,
        is_over: Callable[[], bool],
        is_checked: bool = False,
    ) -> None:
        """`is_over` returns whether another node owns the mover's state.

        With `is_checked`, the limits of the target topic for producers do not apply.
        """
        self.producer: ProducerIdentity | None = None  # of new batches
        self._topics = topics
        self._leaders = leaders
        self._is_over = is_over
        self._is_checked = is_checked
        self._sequences: dict[tuple[bytes, int], int] = {}

    def write_as(self, producer: ProducerIdentity) -> None:
        """Number new batches as this producer, which has written nothing in this epoch."""
        self.producer, self._sequences = producer, {}

    async def renew(self) -> None:
        """Number new batches as a new producer."""
        producer_id = await self._topics.facts.reserve_producer_id()
        self.write_as(ProducerIdentity(producer_id, 0))

    def number(self, topic: Topic, partition: int, count: int) -> BatchNumbers:
        """Return the numbers of the next batch for a partition, of `count` records."""
        assert self.producer is not None
        place = (topic.id, partition)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = add_sequence(sequence, count)
        return BatchNumbers(*place, self.producer, sequence)

    def reuse(self, numbers: BatchNumbers) -> None:
        """Give the numbers of a batch that will never be stored to the next one."""
        if numbers.producer == self.producer:
            self._sequences[numbers.topic_id, numbers.partition] = numbers.sequence

    async def store(self, numbers: BatchNumbers, records: Sequence[Record]) -> int:
        """Send a batch until its partition has it; return the offset after it, 0 if not known.

        The numbers may be those of an earlier owner. Raises `UnknownTopicId` if the topic was
        deleted, `OutOfOrderSequence` if the partition has lost earlier batches of the producer,
        `NotCoordinator` if it is over, or another error that is not retryable.
        """
        (producer_id, epoch), sequence = numbers.producer, numbers.sequence
        batch = bytes(
            encode_batch(
                records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
            )
        )
        while not self._is_over():
            topic = self._topics.find_by_id(numbers.topic_id)
            if topic is None:
                raise UnknownTopicId(numbers.topic_id.hex())
            try:
                stored = await self._leaders.append(
                    topic,
                    numbers.partition,
                    batch,
                    timeout_ms=APPEND_TIMEOUT_MS,
                    is_checked=self._is_checked,
                )
                return stored.last_offset + 1
            except DuplicateSequence:
                return 0  # It was stored long ago.
            except GoQueueError as error:
                if not error.retryable:
                    raise
                _log.warning("cannot move messages to %s yet; retrying: %s", topic.name, error)
        raise NotCoordinator("Another node continues this move.")
