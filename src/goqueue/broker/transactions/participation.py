"""Checks whether a producer may write to partitions in its transaction, on any coordinator.

A batch that no marker will reach stays undecided forever. On the coordinator's node the check and
the write are one step. From another node, the transaction may end while the response is in transit.
So a response is valid only if, since the request was sent, the partition has received no marker of
the producer, and none from a coordinator newer than the one that responds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from goqueue.broker.topics.topics import Topics
from goqueue.broker.transactions.calls import TransactionCalls
from goqueue.model.bounds import PartitionNumber, ProducerEpoch, ProducerId
from goqueue.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
)
from goqueue.model.names import TRANSACTION_TOPIC, ProducerIdentity, TopicPartition
from goqueue.partition import Partition

_ADMIT = "admit"
_NO_MARKER = -1
_NO_EPOCH = -1

_encode = msgspec.msgpack.Encoder().encode


class _Question(msgspec.Struct, frozen=True, array_like=True):
    """May this producer write there? Partitions in `joining` become participants first."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: list[tuple[str, PartitionNumber]]
    joining: list[tuple[str, PartitionNumber]]


_question_decoder = msgspec.msgpack.Decoder(_Question)
_epoch_decoder = msgspec.msgpack.Decoder(int)


class _Seen:
    """A partition's state of a producer when a request about it was sent."""

    __slots__ = ("leader_epoch", "marker", "partition")

    def __init__(self, partition: Partition, producer_id: int) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.marker = _marker(partition, producer_id)[0]

    def holds(self, producer_id: int, coordinator_epoch: int) -> bool:
        """Whether a response from a coordinator with this epoch is still valid."""
        marker, marker_epoch = _marker(self.partition, producer_id)
        return (
            self.partition.leader_epoch == self.leader_epoch
            and marker == self.marker
            and marker_epoch <= coordinator_epoch
        )


class Coordinators(Protocol):
    """The coordinators on this node."""

    def partition_of(self, transactional_id: str) -> int: ...

    def is_here(self, transactional_id: str) -> bool: ...

    async def admit(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        joining: Iterable[TopicPartition],
    ) -> int: ...


class Participation:
    """Queries coordinators, and responds for those on this node."""

    def __init__(self, topics: Topics, coordinators: Coordinators, calls: TransactionCalls) -> None:
        self._topics = topics
        self._coordinators = coordinators
        self._calls = calls
        calls.serve(_ADMIT, self._serve)

    async def ensure(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Sequence[Partition],
        *,
        joining: Sequence[TopicPartition] = (),
    ) -> None:
        """Return when the producer may write to these partitions, which this node leads.

        The caller must write without yielding in between. Raise if the producer may not write.
        Partitions in `joining` need not be participants yet, nor be led here.
        """
        names = [partition.name for partition in partitions]
        # A coordinator on this node can be queried each time, and may have an end before its marker
        # is written.
        is_elsewhere = not self._coordinators.is_here(transactional_id)
        if is_elsewhere and is_open(identity, partitions) and set(joining) <= set(names):
            return
        seen = [_Seen(partition, identity.producer_id) for partition in partitions]
        epoch = await self.ask(transactional_id, identity, names, joining)
        if not all(one.holds(identity.producer_id, epoch) for one in seen):
            raise ConcurrentTransactions(
                f"The transaction of {transactional_id!r} changed in the meantime; retry."
            )

    async def ask(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        joining: Iterable[TopicPartition],
    ) -> int:
        """Return the epoch of the coordinator that agrees; raise its refusal."""
        coordinators = self._coordinators
        if coordinators.is_here(transactional_id):
            return await coordinators.admit(transactional_id, identity, partitions, joining)
        topic = self._topics.find(TRANSACTION_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("There are no transactions yet; retry.")
        question = _Question(
            transactional_id,
            *identity,
            [(one.topic, one.partition) for one in partitions],
            [(one.topic, one.partition) for one in joining],
        )
        number = coordinators.partition_of(transactional_id)
        return _epoch_decoder.decode(await self._calls.ask(topic, number, _ADMIT, question))

    async def _serve(self, asked: bytes) -> bytes:
        question = _question_decoder.decode(asked)
        epoch = await self._coordinators.admit(
            question.transactional_id,
            ProducerIdentity(question.producer_id, question.producer_epoch),
            [TopicPartition(*one) for one in question.partitions],
            [TopicPartition(*one) for one in question.joining],
        )
        return _encode(epoch)


def is_open(identity: ProducerIdentity, partitions: Iterable[Partition]) -> bool:
    """Whether all partitions have this transaction open, its marker still to come."""
    for partition in partitions:
        one = partition.transactions.get(identity.producer_id)
        if one is None or one.producer_epoch != identity.epoch:
            return False
    return True


def _marker(partition: Partition, producer_id: int) -> tuple[int, int]:
    """The last marker of a producer, and the epoch of the coordinator that sent it."""
    known = partition.producers.get(producer_id)
    if known is None:
        return _NO_MARKER, _NO_EPOCH
    return known.marker_offset, known.coordinator_epoch
