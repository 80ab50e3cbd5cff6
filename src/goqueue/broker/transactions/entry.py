"""Admits a producer's transactional batch to a partition, once its coordinator has the
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from goqueue.broker.publishing.split_batches import Split
from goqueue.broker.topics.topics import Topics
from goqueue.broker.transactions.joining import Joining
from goqueue.broker.transactions.transactions import Transactions
from goqueue.loop.promise import Promise, start
from goqueue.model.errors import ConcurrentTransactions, InvalidTransactionState
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.partition import Appended, Partition

Store = Callable[[], Appended | Split]


class Entrant(NamedTuple):
    """A batch to be admitted.

    Its partition may join the transaction with it if `joins` is set. `also` are internal partitions
    that receive a part of it; producers never add these, so they may always join.
    """

    transactional_id: str
    identity: ProducerIdentity
    partition: Partition
    also: Sequence[TopicPartition]
    joins: bool
    store: Store

    @property
    def names(self) -> list[TopicPartition]:
        return [self.partition.name, *self.also]

    @property
    def joining(self) -> list[TopicPartition]:
        return self.names if self.joins else list(self.also)


class TransactionEntry:
    """Admits batches; those of one producer in order of arrival."""

    def __init__(self, topics: Topics, transactions: Transactions, *, is_alone: bool) -> None:
        self._topics = topics
        self._transactions = transactions
        self._is_alone = is_alone
        # By partition and producer: the newest batch waiting for its partition to become a
        # participant.
        self._joining: dict[tuple[Partition, int], Promise[None]] = {}

    def admit(self, entrant: Entrant) -> Appended | Split | Joining:
        """Store a batch, at once or when it is confirmed to be part of a transaction."""
        return self._verify(entrant) if self._is_alone else self._ask(entrant)

    def _verify(self, entrant: Entrant) -> Appended | Split | Joining:
        """All coordinators are on this node and answer synchronously."""
        transactional_id, identity, partition, *_ = entrant
        verify, joining = self._transactions.verify, entrant.joining
        missing: list[TopicPartition] = []
        for name in entrant.names:
            refusal = verify(transactional_id, identity, name)
            if refusal is None:
                continue
            is_absent = isinstance(refusal, InvalidTransactionState | ConcurrentTransactions)
            if not (is_absent and name in joining):
                raise refusal
            missing.append(name)

        def append() -> Appended | Split:
            for name in entrant.names:
                refusal = verify(transactional_id, identity, name)
                if refusal is not None:
                    raise refusal
            return entrant.store()

        if missing:
            joined = self._transactions.add_partitions(transactional_id, identity, missing)
            return self._wait(entrant, joined, append)
        # A batch behind one that waits must wait too, or it would be stored out of order.
        earlier = self._joining.get((partition, identity.producer_id))
        if earlier is not None:
            return Joining(partition, earlier, append)
        return entrant.store()

    def _ask(self, entrant: Entrant) -> Appended | Split | Joining:
        """The coordinator may be on another node, so admission may be asynchronous."""
        transactional_id, identity, partition, also, *_ = entrant
        partition.check_leading()
        earlier = self._joining.get((partition, identity.producer_id))
        known = [self._topics.get(name.topic).partition(name.partition) for name in also]
        here = [partition, *(one for one in known if not one.is_following)]
        joined: Promise[None] = Promise()

        async def run() -> None:
            if earlier is not None:
                await earlier
            await self._transactions.participation.ensure(
                transactional_id, identity, here, joining=entrant.joining
            )

        start(run(), joined.settle)
        if not joined.is_done:
            return self._wait(entrant, joined, entrant.store)
        refusals: list[Exception | None] = []
        joined.then(lambda _, error: refusals.append(error))
        if refusals[0] is not None:
            raise refusals[0]
        return entrant.store()

    def _wait(self, entrant: Entrant, joined: Promise[None], store: Store) -> Joining:
        place = (entrant.partition, entrant.identity.producer_id)
        joining = Joining(entrant.partition, joined, store)

        def forget(_: None, error: Exception | None) -> None:
            if self._joining.get(place) is joined:
                del self._joining[place]

        self._joining[place] = joined
        joined.then(forget)
        return joining
