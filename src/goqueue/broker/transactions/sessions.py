"""Transactions for front ends whose clients have neither producers nor batches.

A client begins a transaction, acts in it and ends it, and holds only its id. All of this is built
on the coordinators and participants that every transaction has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from goqueue.broker.publishing.publisher import PublishResult
from goqueue.broker.queues.queues import Outcomes
from goqueue.broker.queues.transactions import TransactionalAcks
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topics
from goqueue.broker.transactions.calls import Fault
from goqueue.broker.transactions.ids import (
    TRANSACTIONAL_ID_BYTES_MAX,
    Transaction,
    TransactionIds,
)
from goqueue.broker.transactions.names import GENERATED_PREFIX, GeneratedNames
from goqueue.broker.transactions.publishing import Addressed, TransactionPublisher
from goqueue.broker.transactions.transactions import Transactions
from goqueue.groups import CommitOffsets, OffsetErrors
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise, start
from goqueue.model.bounds import ProducerEpoch, ProducerId
from goqueue.model.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    NotCoordinator,
    StorageFailed,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.session import ANONYMOUS
from goqueue.model.tenants import is_bare_prefix, plain_name
from goqueue.transactions import TransactionState, TransactionView

# A begin under a name whose last transaction is still completing is retried this often.
BEGIN_TRIES_MAX = 5
BEGIN_PAUSE_MS = 200

_ENDING = frozenset(TransactionState) - {TransactionState.EMPTY, TransactionState.ONGOING}

# Names of the calls between nodes.
_ACK = "ack"
_OFFSETS = "offsets"


class _Ack(msgspec.Struct, frozen=True, array_like=True):
    """Acknowledge messages of a queue group that the receiving node owns."""

    transactional_id: str
    identity: tuple[ProducerId, ProducerEpoch]
    group: str
    receipts: list[str]


class _Offsets(msgspec.Struct, frozen=True, array_like=True):
    """Commit offsets of a stream group that the receiving node coordinates."""

    transactional_id: str
    identity: tuple[ProducerId, ProducerEpoch]
    call: CommitOffsets


_encode = msgspec.msgpack.Encoder().encode
_ack_decoder = msgspec.msgpack.Decoder(_Ack)
_outcomes_decoder = msgspec.msgpack.Decoder(list[Fault | None])
_offsets_decoder = msgspec.msgpack.Decoder(_Offsets)
_faults_decoder = msgspec.msgpack.Decoder(list[tuple[str, int, Fault]])


class Transacting:
    """Begin, publish, commit offsets, acknowledge, commit, abort."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        transactions: Transactions,
        groups: Groups,
        acks: TransactionalAcks,
        publisher: TransactionPublisher,
        *,
        ids: TransactionIds,
        new_id: Callable[[], bytes],
    ) -> None:
        self.ids = ids
        self._clock = clock
        self._transactions = transactions
        self._groups = groups
        self._acks = acks
        self._topics = topics
        self._publisher = publisher
        self._doomed = publisher.doomed
        self._names = GeneratedNames(clock, transactions, new_id)
        transactions.calls.serve(_ACK, self._serve_ack)
        transactions.calls.serve(_OFFSETS, self._serve_offsets)

    # Beginning and ending

    def begin(
        self, transactional_id: str | None, *, timeout_ms: int, principal: str = ANONYMOUS
    ) -> Promise[Transaction]:
        """Begin; fence an earlier producer of the same name and abort its transaction.

        Without a name, one is made that belongs to the principal.
        """
        if transactional_id is not None:
            _check_name(transactional_id)
        promise: Promise[Transaction] = Promise()
        start(self._begin(transactional_id, timeout_ms, principal), promise.settle)
        return promise

    async def _begin(
        self, transactional_id: str | None, timeout_ms: int, principal: str
    ) -> Transaction:
        await self._transactions.ensure_topic()
        name = transactional_id or ""
        if transactional_id is None or is_bare_prefix(transactional_id):
            name = self._names.next(name, principal)
        for _ in range(BEGIN_TRIES_MAX):
            try:
                identity = await self._transactions.initialise(name, timeout_ms=timeout_ms)
                return Transaction(name, identity)
            except ConcurrentTransactions:
                await self._pause(BEGIN_PAUSE_MS)
        identity = await self._transactions.initialise(name, timeout_ms=timeout_ms)
        return Transaction(name, identity)

    def commit(self, transaction: Transaction) -> Promise[None]:
        """Commit; resolves when the outcome is visible to every reader. Idempotent."""
        self._doomed.check(transaction)
        return self._end(transaction, is_commit=True)

    def prepare(self, transaction: Transaction, *, timeout_ms: int | None = None) -> Promise[None]:
        """Prepare for the commit of its epoch; no further operations are accepted in it."""
        self._doomed.check(transaction)
        return self._transactions.prepare(*transaction, timeout_ms=timeout_ms)

    def abort(self, transaction: Transaction) -> Promise[None]:
        """Abort; resolves when all participants have the outcome. Idempotent."""
        return self._end(transaction, is_commit=False)

    def _end(self, transaction: Transaction, *, is_commit: bool) -> Promise[None]:
        promise: Promise[None] = Promise()
        view = self._transactions.describe(transaction.transactional_id)
        is_empty = view.state is TransactionState.EMPTY and view.identity == transaction.identity
        if is_empty and is_commit:
            promise.resolve(None)  # Nothing was done in it.
            return promise

        def ended(_: object, error: Exception | None) -> None:
            if error is None:
                self._doomed.forget(transaction)
            promise.settle(None, error)

        self._transactions.finish(*transaction, is_commit=is_commit, bumps_epoch=True).then(ended)
        return promise

    def describe(self, transaction: Transaction) -> TransactionView:
        """Return the coordinator's state of the transactional id."""
        return self._transactions.describe(transaction.transactional_id)

    @staticmethod
    def is_current(view: TransactionView, transaction: Transaction) -> bool:
        """Whether this is the newest transaction; its end gives the producer a new epoch."""
        producer_id, epoch = transaction.identity
        followed = ProducerIdentity(producer_id, epoch + 1)
        is_over = view.identity == followed and view.state in _ENDING
        return view.identity == transaction.identity or is_over

    # In a transaction

    def publish(
        self, transaction: Transaction, messages: Sequence[Addressed], *, now_ms: int | None = None
    ) -> Promise[list[PublishResult]]:
        """Publish messages to any topics; return a result for each. All are stored, or none is."""
        if now_ms is None:
            now_ms = self._clock.wall_ms()
        promise: Promise[list[PublishResult]] = Promise()
        start(self._publisher.publish(transaction, messages, now_ms=now_ms), promise.settle)
        return promise

    def ack(
        self, transaction: Transaction, group: str, receipts: Sequence[str]
    ) -> Promise[Outcomes]:
        """Acknowledge messages of a queue group; return the outcome of each receipt."""
        promise: Promise[Outcomes] = Promise()
        start(self._ack(transaction, group, receipts), promise.settle)
        return promise

    async def _ack(self, transaction: Transaction, group: str, receipts: Sequence[str]) -> Outcomes:
        partition = self._acks.participant(group)
        try:
            if partition.is_following:
                return await self._ack_elsewhere(partition.name, transaction, group, receipts)
            await self._transactions.participation.ensure(
                *transaction, [partition], joining=[partition.name]
            )
            return await self._acks.prepare(group, receipts, transaction.identity)
        except StorageFailed as error:
            self._doomed.add(transaction, error)
            raise

    async def _ack_elsewhere(
        self, name: TopicPartition, transaction: Transaction, group: str, receipts: Sequence[str]
    ) -> Outcomes:
        topic = self._topics.get(name.topic)
        question = _Ack(*transaction, group, list(receipts))
        answer = await self._transactions.calls.ask(topic, name.partition, _ACK, question)
        return [None if one is None else one.error() for one in _outcomes_decoder.decode(answer)]

    async def _serve_ack(self, asked: bytes) -> bytes:
        question = _ack_decoder.decode(asked)
        partition = self._acks.participant(question.group)
        if partition.is_following:
            raise NotCoordinator("Another node owns this group now; find the owner again.")
        transaction = Transaction(question.transactional_id, ProducerIdentity(*question.identity))
        outcomes = await self._ack(transaction, question.group, question.receipts)
        return _encode([None if one is None else Fault.of(one) for one in outcomes])

    def commit_offsets(
        self, transaction: Transaction, call: CommitOffsets
    ) -> Promise[OffsetErrors]:
        """Commit offsets of a stream group; return those refused, with the reasons."""
        promise: Promise[OffsetErrors] = Promise()
        start(self._commit_offsets(transaction, call), promise.settle)
        return promise

    async def _commit_offsets(self, transaction: Transaction, call: CommitOffsets) -> OffsetErrors:
        topic = await self._groups.ensure_topic()
        number = self._groups.partition_of(call.group_id)
        if not topic.partition(number).is_following:
            return await self._transactions.commit_offsets(
                *transaction, call, joins_transaction=True
            )
        question = _Offsets(*transaction, call)
        answer = await self._transactions.calls.ask(topic, number, _OFFSETS, question)
        faults = _faults_decoder.decode(answer)
        return OffsetErrors({(one, place): fault.error() for one, place, fault in faults})

    async def _serve_offsets(self, asked: bytes) -> bytes:
        question = _offsets_decoder.decode(asked)
        found = await self._transactions.commit_offsets(
            question.transactional_id,
            ProducerIdentity(*question.identity),
            question.call,
            joins_transaction=True,
        )
        faults = [(*place, Fault.of(error)) for place, error in found.errors.items()]
        return _encode(faults)

    def _pause(self, ms: int) -> Promise[None]:
        promise: Promise[None] = Promise()
        self._clock.call_later(ms, lambda: promise.resolve(None))
        return promise


def _check_name(transactional_id: str) -> None:
    if not 1 <= len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
        raise InvalidRequest(
            f"A transactional id must have 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes, not "
            f"{len(transactional_id.encode())}."
        )
    if plain_name(transactional_id).startswith(GENERATED_PREFIX):
        raise InvalidRequest(
            f"Transactional ids that begin with {GENERATED_PREFIX!r} are reserved for the broker; "
            "choose another, or leave it out."
        )
