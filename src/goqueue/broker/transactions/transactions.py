"""Transactions of the node: their coordinators, and the participating partitions.

A transactional id is mapped to one partition of the internal topic, whose coordinator decides.
Participants are partitions: those of topics, and those of internal topics, where the broker itself
writes what a transaction does besides storing records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from goqueue.broker.replication.leaders import Leaders
from goqueue.broker.shards.shards import Shards
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.broker.transactions.calls import TransactionCalls
from goqueue.broker.transactions.host import TransactionShard
from goqueue.broker.transactions.markers import Markers, OnEnd
from goqueue.broker.transactions.orphans import Orphans
from goqueue.broker.transactions.participation import Participation
from goqueue.broker.transactions.strays import MarkerErrors, Strays
from goqueue.config import TransactionSettings
from goqueue.groups import CommitOffsets, OffsetErrors
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, start
from goqueue.model.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    GoQueueError,
    InvalidRequest,
    InvalidTransactionState,
    NotCoordinator,
    UnknownTransaction,
)
from goqueue.model.names import OFFSETS_TOPIC, TRANSACTION_TOPIC, ProducerIdentity, TopicPartition
from goqueue.model.queries import query_of_name, routing_name
from goqueue.model.tenants import tenant_of
from goqueue.partition import Partition
from goqueue.transactions import (
    EPOCH_LAST,
    Coordinator,
    Effect,
    End,
    Initialise,
    Prepare,
    QueryView,
    Standing,
    TransactionState,
    TransactionView,
    Why,
    is_match,
    unknown,
    unknown_query,
    unmapped,
)

T = TypeVar("T")

_ABORT = "abort"
_abort_decoder = msgspec.msgpack.Decoder(tuple[str, int, int])


class Transactions:
    """All transactions that this node coordinates."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        groups: Groups,
        settings: TransactionSettings,
        leaders: Leaders,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._settings = settings
        self._leaders = leaders
        self.calls = TransactionCalls(leaders)
        self.participation = Participation(topics, self, self.calls)
        self._markers = Markers(clock, topics, leaders)
        self.shards: Shards[TransactionShard] = Shards(
            topics,
            leaders,
            TRANSACTION_TOPIC,
            partition_count=settings.state_partitions,
            noun="transaction",
            start=self._start,
        )
        self._strays = Strays(
            topics,
            self._markers,
            self._of_producer,
            self._ask_of_producer,
            abort=self._abort_of_producer,
        )
        self.calls.serve(_ABORT, self._serve_abort)
        self._orphans = Orphans(
            clock,
            topics,
            leaders,
            self.calls,
            shards=self.shards,
            end=self._strays.end_if_orphan,
        )
        # Raises if the tenant of a new transactional id, besides those here, may have no more.
        self.check_quota: Callable[[str, int], None] = lambda name, here: None
        # Called with every transaction that ends at a coordinator here.
        self.ended: Callable[[Standing, Why], None] | None = None
        self.on_end[OFFSETS_TOPIC] = groups.transaction_ended

    @property
    def on_end(self) -> dict[str, OnEnd]:
        """Owners of internal topics, by name: `owner(partition, producer_id, is_commit)`.

        An owner is called when a marker in one of its partitions is committed, possibly twice for
        one transaction. It is not called for markers that it finds when it replays its log.
        """
        return self._markers.on_end

    def open(self) -> None:
        """Find and abort open transactions without a coordinator.

        The coordinators, and the owners of internal topics, must have been notified of their
        leadership.
        """
        if self._leaders.is_alone:
            self._strays.end_orphans()
        else:
            self._orphans.watch()

    def _start(self, partition: Partition) -> TransactionShard:
        coordinator = Coordinator(self._settings)
        if self.ended is not None:
            coordinator.ended = self.ended
        shard = TransactionShard(self._clock, partition, coordinator, self._markers)
        shard.replay()
        shard.start_when_committed()
        return shard

    async def ensure_topic(self) -> Topic:
        """Return the internal topic, creating it if missing."""
        return await self.shards.ready()

    def partition_of(self, transactional_id: str) -> int:
        return self.shards.number_of(routing_name(transactional_id))

    def owner_of(self, transactional_id: str) -> int:
        """Return the node that coordinates a transactional id; -1 if there is none."""
        return self.shards.owner_of(routing_name(transactional_id))

    def owner_of_any(self) -> int:
        """Return a node that coordinates transactional ids; -1 if there is none."""
        return self.shards.any_owner()

    # Producers

    def initialise(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> Promise[ProducerIdentity]:
        """Become the producer of this id: fence the previous one, and abort its open transaction
        first. A producer that gives its own id and epoch gets its next epoch.
        """
        is_named = producer_id >= 0 or producer_epoch >= 0

        async def run() -> ProducerIdentity:
            await self.ensure_topic()
            self.check_room(transactional_id)
            call = Initialise(
                transactional_id=transactional_id,
                timeout_ms=timeout_ms,
                identity=ProducerIdentity(producer_id, producer_epoch) if is_named else None,
                new_producer_id=await self._topics.facts.reserve_producer_id(),
            )
            initialised: Promise[ProducerIdentity] = self.call(
                transactional_id, lambda one, **at: one.initialise(call, **at)
            )
            return await initialised

        return _promised(run())

    def add_partitions(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
    ) -> Promise[None]:
        """Add participants; the first ones begin a transaction. Resolves when durable."""
        return self.call(
            transactional_id,
            lambda one, **at: one.add_partitions(transactional_id, identity, partitions, **at),
        )

    def verify(
        self, transactional_id: str, identity: ProducerIdentity, partition: TopicPartition
    ) -> GoQueueError | None:
        """Why this producer may not write there in its transaction now; None if it may."""
        try:
            coordinator = self._get(transactional_id).machine
        except UnknownTransaction:
            return unmapped(transactional_id, identity.producer_id)
        except GoQueueError as error:
            return error
        return coordinator.verify(transactional_id, identity, partition)

    def is_here(self, transactional_id: str) -> bool:
        """Whether this node coordinates a transactional id, according to its metadata."""
        return self.shards.is_here(routing_name(transactional_id))

    async def admit(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        joining: Iterable[TopicPartition],
    ) -> int:
        """Let a producer write to partitions in its transaction; return the coordinator's epoch.

        They must be participants already, except those in `joining`. Raise if it may not write.
        """
        shard = self._get(transactional_id)
        may_join = dict.fromkeys(joining)
        names = list(dict.fromkeys((*partitions, *may_join)))
        missing: list[TopicPartition] = []
        for name in names:
            refusal = self.verify(transactional_id, identity, name)
            if refusal is None:
                continue
            is_absent = isinstance(refusal, InvalidTransactionState | ConcurrentTransactions)
            if not (is_absent and name in may_join):
                raise refusal
            missing.append(name)
        if missing:
            await self.add_partitions(transactional_id, identity, missing)
            for name in names:
                refusal = self.verify(transactional_id, identity, name)
                if refusal is not None:
                    raise refusal
        return shard.epoch

    # Offsets

    def add_group(
        self, transactional_id: str, identity: ProducerIdentity, group_id: str
    ) -> Promise[None]:
        """Add the offsets of a group to the transaction."""

        async def run() -> None:
            partition = await self._offsets_partition(group_id)
            await self.add_partitions(transactional_id, identity, [partition])

        return _promised(run())

    def commit_offsets(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        call: CommitOffsets,
        *,
        joins_transaction: bool = False,
    ) -> Promise[OffsetErrors]:
        """Commit offsets that take effect when the transaction commits.

        The group must have been added, unless `joins_transaction` adds it here.
        """

        async def run() -> OffsetErrors:
            name = await self._offsets_partition(call.group_id)
            partition = self._topics.get(name.topic).partition(name.partition)
            if partition.is_following:
                raise NotCoordinator("Another node coordinates this group; find it again.")
            await self._groups.know(one.topic for one in call.offsets)
            # From here to the write nothing may yield, or a marker might be written in between.
            await self.participation.ensure(
                transactional_id,
                identity,
                [partition],
                joining=[name] if joins_transaction else (),
            )
            return await self._groups.commit_offsets(call, identity=identity)

        return _promised(run())

    async def _offsets_partition(self, group_id: str) -> TopicPartition:
        await self._groups.ensure_topic()
        return TopicPartition(OFFSETS_TOPIC, self._groups.partition_of(group_id))

    # Ending

    def prepare(
        self, transactional_id: str, identity: ProducerIdentity, *, timeout_ms: int | None = None
    ) -> Promise[None]:
        """Let the transaction, now fully written, wait for the commit of its epoch. Idempotent."""
        longest_ms = self._settings.prepared_timeout_ms_max
        call = Prepare(
            transactional_id=transactional_id,
            identity=identity,
            timeout_ms=longest_ms if timeout_ms is None else timeout_ms,
        )
        return self.call(transactional_id, lambda one, **at: one.prepare(call, **at))

    def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        is_commit: bool,
        bumps_epoch: bool = False,
    ) -> Promise[ProducerIdentity]:
        """Decide the transaction; resolves when that is durable. Readers see it soon after.

        With `bumps_epoch` the producer continues under the identity that is returned.
        """
        return self._end(transactional_id, identity, is_commit, bumps_epoch, waits=False)

    def finish(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        is_commit: bool,
        bumps_epoch: bool = False,
    ) -> Promise[ProducerIdentity]:
        """Like `end`, but resolves when every participant has the outcome."""
        return self._end(transactional_id, identity, is_commit, bumps_epoch, waits=True)

    def _end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        is_commit: bool,
        bumps_epoch: bool,
        *,
        waits: bool,
    ) -> Promise[ProducerIdentity]:
        async def run() -> ProducerIdentity:
            needs_id = bumps_epoch and identity.epoch >= EPOCH_LAST
            call = End(
                transactional_id=transactional_id,
                identity=identity,
                is_commit=is_commit,
                bumps_epoch=bumps_epoch,
                waits=waits,
                new_producer_id=await self._topics.facts.reserve_producer_id() if needs_id else -1,
            )
            ended: Promise[ProducerIdentity] = self.call(
                transactional_id, lambda one, **at: one.end(call, **at)
            )
            return await ended

        return _promised(run())

    def abort(self, transactional_id: str) -> Promise[None]:
        """Abort for an operator: fence the producer and abort its transaction; resolves when
        done.
        """
        aborted: Promise[None] = Promise()
        self.call(transactional_id, lambda one, **at: one.abort(transactional_id, **at)).then(
            lambda _, error: aborted.settle(None, error)
        )
        return aborted

    def _abort_of_producer(
        self, transactional_id: str, identity: ProducerIdentity
    ) -> Promise[None]:
        """Abort a producer's transaction on whichever node coordinates it, unless it has ended."""

        async def run() -> None:
            if self._leaders.is_alone or self.is_here(transactional_id):
                await self.call(
                    transactional_id,
                    lambda one, **at: one.abort(transactional_id, identity=identity, **at),
                )
                return
            question = (transactional_id, identity.producer_id, identity.epoch)
            number = self.partition_of(transactional_id)
            await self.calls.ask(self._topics.get(TRANSACTION_TOPIC), number, _ABORT, question)

        return _promised(run())

    async def _serve_abort(self, asked: bytes) -> bytes:
        transactional_id, producer_id, epoch = _abort_decoder.decode(asked)
        if not self.is_here(transactional_id):
            raise self.shards.elsewhere()
        await self._abort_of_producer(transactional_id, ProducerIdentity(producer_id, epoch))
        return b""

    # Queries

    def describe(self, transactional_id: str) -> TransactionView:
        """Return a transaction; raise UnknownTransaction if there is none."""
        return self._get(transactional_id).machine.describe(transactional_id)

    def all(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        older_than_ms: int = -1,
        pattern: str = "",
    ) -> list[TransactionView]:
        """Return every transaction, or those that match every given filter.

        `older_than_ms` selects transactions that have been open for longer than this.
        """
        before_ms = self._clock.now_ms() - older_than_ms if older_than_ms >= 0 else None
        return [
            view
            for shard in self.shards
            for view in shard.machine.all(
                states=states, producer_ids=producer_ids, started_before_ms=before_ms
            )
            if is_match(pattern, view.transactional_id)
        ]

    def queries(self) -> list[QueryView]:
        """Return the queries of which this node coordinates the transactions."""
        return [view for shard in self.shards for view in shard.machine.queries()]

    # Markers from other coordinators

    def write_markers(
        self,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        is_commit: bool,
        coordinator_epoch: int,
    ) -> Promise[MarkerErrors]:
        """Write markers decided by another coordinator, or by an operator for an orphan."""
        return self._strays.write_markers(
            identity, partitions, is_commit=is_commit, coordinator_epoch=coordinator_epoch
        )

    # Coordinators

    def call(self, transactional_id: str, call: Callable[..., list[Effect]]) -> Promise[Any]:
        """Pass a call to the coordinator of this transactional id."""
        if not transactional_id:
            refused: Promise[Any] = Promise()
            refused.reject(_unnamed())
            return refused
        return self.shards.call(routing_name(transactional_id), lambda shard: shard.ask(call))

    def coordinator_of(self, transactional_id: str) -> Coordinator:
        return self._get(transactional_id).machine

    def _get(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise _unnamed()
        shard = self.shards.find(routing_name(transactional_id))
        if shard is not None:
            return shard
        query_id = query_of_name(transactional_id)
        raise unknown(transactional_id) if query_id is None else unknown_query(query_id)

    def _of_producer(self, producer_id: int) -> TransactionView | None:
        for shard in self.shards:
            view = shard.machine.of_producer(producer_id)
            if view is not None:
                return view
        return None

    def _ask_of_producer(self, producer_id: int) -> Promise[TransactionView | None]:
        async def run() -> TransactionView | None:
            if self._leaders.is_alone:
                return self._of_producer(producer_id)
            return (await self._orphans.ask([producer_id])).get(producer_id)

        return _promised(run())

    def check_room(self, transactional_id: str) -> None:
        """Refuse a new transactional id beyond the limit of this node or of its tenant."""
        shard = self.shards.find(routing_name(transactional_id))
        if shard is None or not shard.machine.is_loaded or transactional_id in shard.machine:
            return  # The call itself finds the coordinator, if there is one.
        count = sum(len(one.machine) for one in self.shards)
        if count >= self._settings.ids_max:
            raise CoordinatorNotAvailable(
                f"This node has {count} transactional ids, its limit (setting "
                "transactions.ids_max); use one of those, or retry when some have expired."
            )
        self.check_quota(transactional_id, self.count_of(tenant_of(transactional_id)))

    def count_of(self, tenant: str) -> int:
        """Return how many transactional ids of a tenant this node coordinates."""
        return sum(one.machine.count_of(tenant) for one in self.shards)


def _unnamed() -> InvalidRequest:
    return InvalidRequest("A transaction needs a transactional id.")


def _promised(coroutine: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    promise: Promise[T] = Promise()
    start(coroutine, promise.settle)
    return promise
