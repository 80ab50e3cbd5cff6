"""Finds open transactions in a cluster that no coordinator has, by querying all, and ends them.

A partition has only the producer id of a transaction, not its transactional id, so it cannot derive
the coordinator. Participants are persisted before their first record, so an orphan arises only when
a leader was elected that had lost committed records. But then read_committed readers would wait
forever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

import msgspec

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.shards import Shards
from goqueue.broker.topics.topics import Topics
from goqueue.broker.transactions.calls import TransactionCalls
from goqueue.broker.transactions.host import TransactionShard
from goqueue.loop.clock import Clock
from goqueue.loop.promise import start
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, NotCoordinator
from goqueue.model.names import TRANSACTION_TOPIC, ProducerIdentity
from goqueue.partition import Partition
from goqueue.transactions import TransactionView

LOOK_MS = 30_000  # a transaction open at two consecutive scans is queried
ASKED_MAX = 1_000  # producers per query; the others follow in the next scan

_WHOSE = "whose"

_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode

Views = dict[int, TransactionView]
EndOrphan = Callable[[Partition, ProducerIdentity, TransactionView | None], None]


class _Whose(msgspec.Struct, frozen=True, array_like=True):
    """Which transactions of these producers does the coordinator of a partition have?"""

    number: int
    producer_ids: list[int]


class _Open(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A transaction as a partition has it; any write to it makes it compare as another."""

    topic: str
    number: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int


_whose_decoder = msgspec.msgpack.Decoder(_Whose)
_views_decoder = msgspec.msgpack.Decoder(dict[int, TransactionView])


class Orphans:
    """Finds and ends orphaned transactions in the partitions that this node leads."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        leaders: Leaders,
        calls: TransactionCalls,
        *,
        shards: Shards[TransactionShard],
        end: EndOrphan,
    ) -> None:
        """`shards` has the coordinators of this node; `end` is called with a transaction to
        end.
        """
        self._clock = clock
        self._topics = topics
        self._leaders = leaders
        self._calls = calls
        self._shards = shards
        self._end = end
        self._open_before: set[_Open] = set()
        calls.serve(_WHOSE, self._serve)

    def watch(self) -> None:
        """Scan periodically for as long as the node runs."""
        self._clock.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        self.watch()
        found = set(self._open())
        suspects, self._open_before = found & self._open_before, found
        if suspects:
            some = sorted(suspects, key=lambda one: (one.first_offset, one))[:ASKED_MAX]
            start(self._examine(some), self._looked)

    def _open(self) -> Iterator[_Open]:
        for topic in self._topics:
            for number, partition in enumerate(topic.partitions):
                if partition.is_following or not len(partition.transactions):
                    continue
                for one in partition.transactions:
                    yield _Open(
                        topic.name,
                        number,
                        partition.leader_epoch,
                        one.producer_id,
                        one.producer_epoch,
                        one.first_offset,
                        one.last_offset,
                    )

    async def _examine(self, suspects: Collection[_Open]) -> None:
        views = await self.ask({one.producer_id for one in suspects})
        still_open = set(self._open())
        for one in suspects:
            if one in still_open:
                partition = self._topics.get(one.topic).partition(one.number)
                identity = ProducerIdentity(one.producer_id, one.producer_epoch)
                self._end(partition, identity, views.get(one.producer_id))

    def _looked(self, _: None, error: Exception | None) -> None:
        if isinstance(error, GoQueueError):
            _log.info("open transactions could not be checked; they will be again: %s", error)
        elif error is not None:
            raise error

    async def ask(self, producer_ids: Collection[int]) -> Views:
        """Query all coordinators about these producers; raise if one does not respond."""
        topic = self._topics.find(TRANSACTION_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("There are no transactions yet; retry.")
        views: Views = {}
        for number in range(len(topic.partitions)):
            question = _Whose(number, sorted(producer_ids))
            if number in self._shards.owned:
                views |= await self._answer(question)
            else:
                answer = await self._calls.ask(topic, number, _WHOSE, question)
                views |= _views_decoder.decode(answer)
        return views

    async def _serve(self, asked: bytes) -> bytes:
        return _encode(await self._answer(_whose_decoder.decode(asked)))

    async def _answer(self, question: _Whose) -> Views:
        shard = self._shards.owned.get(question.number)
        if shard is None:
            raise NotCoordinator("Another node coordinates these transactions; find it again.")
        # "Unknown" must be certain: a deposed coordinator does not have the transactions that its
        # successor has begun.
        await shard.prove()
        if shard.is_closed:
            raise NotCoordinator("Another node coordinates these transactions; find it again.")
        shard.machine.check_ready()
        found = {one: shard.machine.of_producer(one) for one in question.producer_ids}
        return {one: view for one, view in found.items() if view is not None}
