"""Operations on transactions.

Two kinds of clients use them. Clients without producers use the id of a transaction, which `begin`
returns. Producers use a transactional id and the identity that `initialise` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from goqueue.broker.gate.forwarding import Coordinators, coordinator_of_call, find_coordinators
from goqueue.broker.gate.operation import (
    Area,
    Arguments,
    also,
    group,
    named_by_owner,
    operation,
    query,
    topic,
    transactional_id,
)
from goqueue.broker.gate.transaction_answers import (
    NO_TRANSACTION,
    Begun,
    Joined,
    Listed,
    ProducerView,
    PublishResults,
    ShownTransaction,
    TransactionPage,
)
from goqueue.broker.queues.queues import Outcomes
from goqueue.broker.transactions.ids import Transaction, transactional_id_in
from goqueue.broker.transactions.names import GENERATED_PREFIX
from goqueue.broker.transactions.publishing import Addressed, all_refused
from goqueue.groups import CommitOffsets, OffsetErrors, OffsetToCommit
from goqueue.loop.promise import Promise
from goqueue.model.access import CLUSTER, Access, Action, Resource, ResourceKind
from goqueue.model.errors import (
    GoQueueError,
    InternalTopic,
    InvalidRequest,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.names import ProducerIdentity, TopicPartition
from goqueue.model.session import Session
from goqueue.model.tenants import (
    GroupName,
    NamePattern,
    NamePrefix,
    NewTransactionalId,
    Text,
    TopicName,
    TransactionalId,
    TransactionHandle,
    is_bare_prefix,
)
from goqueue.transactions import TransactionState, TransactionView

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "Addressed",
    "Begun",
    "CommitOffsets",
    "Joined",
    "Listed",
    "OffsetToCommit",
    "Outcomes",
    "ProducerView",
    "PublishResults",
    "ShownTransaction",
    "TransactionPage",
    "TransactionState",
    "TransactionView",
    "TransactionsArea",
]


# Resources and owners


def _transactional_id_of_transaction(arguments: Arguments) -> Iterable[Resource]:
    name = transactional_id_in(arguments["transaction_id"])
    return (Resource(ResourceKind.TRANSACTIONAL_ID, name),)


def _transactional_id_to_begin(arguments: Arguments) -> Iterable[Resource]:
    """Access to generated names is granted by what they have in common, but each has an owner."""
    name = arguments["transactional_id"]
    if name is None or is_bare_prefix(name):
        name = (name or "") + GENERATED_PREFIX
    return (Resource(ResourceKind.TRANSACTIONAL_ID, name),)


def _topics_of_messages(arguments: Arguments) -> Iterable[Resource]:
    for name in {one.topic for one in arguments["messages"]}:
        yield Resource(ResourceKind.TOPIC, name)


def _producer_or_node(arguments: Arguments) -> Iterable[Resource | Access]:
    """A node that adds partitions for a producer has authorised the producer itself."""
    if arguments.get("is_from_node"):
        return (Access(Action.CLUSTER_ACTION, CLUSTER),)
    return (Resource(ResourceKind.TRANSACTIONAL_ID, arguments["transactional_id"]),)


def _coordinator_of_transaction(broker: Broker, arguments: Arguments) -> int:
    transaction = broker.transacting.ids.read(arguments["transaction_id"])
    return broker.transactions.owner_of(transaction.transactional_id)


def _coordinator_to_begin(broker: Broker, arguments: Arguments) -> int:
    """Without a name, a name is generated that this node coordinates, if it coordinates any."""
    name = arguments["transactional_id"]
    if name is None or is_bare_prefix(name):
        return broker.transactions.owner_of_any()
    return broker.transactions.owner_of(name)


def _coordinator(broker: Broker, arguments: Arguments) -> int:
    return broker.transactions.owner_of(arguments["transactional_id"])


def _one_page(arguments: Arguments, pages: Sequence[TransactionPage]) -> TransactionPage:
    found = [one for page in pages for one in page.transactions]
    found.sort(key=lambda one: one.view.transactional_id)
    return TransactionPage(found[: arguments.get("limit")], sum(page.total for page in pages))


class TransactionsArea(Area):
    """Transactions, used by transaction id, or driven by producers."""

    # By the id of a transaction

    @operation(Action.WRITE, _transactional_id_to_begin, owner=_coordinator_to_begin)
    async def begin(
        self, session: Session, *, transactional_id: NewTransactionalId, timeout_ms: int
    ) -> Begun:
        """Begin a transaction; abort the last one of the same transactional id."""
        transacting = self._broker.transacting
        begun = await transacting.begin(
            transactional_id, timeout_ms=timeout_ms, principal=session.principal
        )
        return Begun(transacting.ids.write(begun), *begun)

    @operation(
        Action.DESCRIBE,
        _transactional_id_of_transaction,
        owner=_coordinator_of_transaction,
        is_reading=True,
    )
    async def show(
        self, session: Session, *, transaction_id: TransactionHandle
    ) -> ShownTransaction:
        """Return a transaction, or its successor under the same transactional id."""
        transaction = self._transaction(transaction_id)
        view = self._broker.transacting.describe(transaction)
        is_current = self._broker.transacting.is_current(view, transaction)
        return ShownTransaction(self._visible(session, view), not is_current)

    @operation(
        Action.WRITE,
        _transactional_id_of_transaction,
        _topics_of_messages,
        owner=_coordinator_of_transaction,
    )
    async def publish(
        self,
        session: Session,
        *,
        transaction_id: TransactionHandle,
        messages: Sequence[Addressed],
        unreadable: Mapping[int, Text] = {},
        now_ms: int,
    ) -> PublishResults:
        """Publish messages to any topics: all of them, or none.

        `unreadable` are the messages that the front end could not decode, by their position among
        all messages of the call, with the reasons.
        """
        transaction = self._transaction(transaction_id)
        if self._broker.quotas.is_active:
            self._broker.quotas.check_produce(session, [one.record for one in messages])
        count = len(messages) + len(unreadable)
        refused: dict[int, GoQueueError] = {
            place: InvalidRequest(reason) for place, reason in unreadable.items()
        }
        for name in {one.topic for one in messages}:
            try:
                if self._broker.topics.find(name) is None:
                    await self._create_topic(session, name)
            except GoQueueError as error:
                places = (place for place in range(count) if place not in unreadable)
                pairs = zip(places, messages, strict=True)
                refused |= {place: error for place, one in pairs if one.topic == name}
        if refused:
            return PublishResults(all_refused(count, refused))
        return PublishResults(
            await self._broker.transacting.publish(transaction, messages, now_ms=now_ms)
        )

    @operation(
        Action.WRITE,
        _transactional_id_of_transaction,
        also(Action.READ, group("call.group_id")),
        owner=_coordinator_of_transaction,
    )
    async def commit_offsets(
        self, session: Session, *, transaction_id: TransactionHandle, call: CommitOffsets
    ) -> OffsetErrors:
        """Commit offsets of a stream group in the transaction; return the refused ones."""
        transaction = self._transaction(transaction_id)
        refused, accepted = self._checked(session, call.offsets)
        if not accepted:
            return OffsetErrors(refused)
        call = msgspec.structs.replace(call, offsets=accepted)
        result = await self._broker.transacting.commit_offsets(transaction, call)
        return OffsetErrors(refused | result.errors)

    @operation(
        Action.WRITE,
        _transactional_id_of_transaction,
        also(Action.READ, group()),
        owner=_coordinator_of_transaction,
    )
    def ack(
        self,
        session: Session,
        *,
        transaction_id: TransactionHandle,
        group: GroupName,
        receipts: Sequence[Text],
    ) -> Promise[Outcomes]:
        """Acknowledge messages of a queue group in the transaction; return the outcomes."""
        transaction = self._transaction(transaction_id)
        return self._broker.transacting.ack(transaction, group, receipts)

    @operation(Action.WRITE, _transactional_id_of_transaction, owner=_coordinator_of_transaction)
    def prepare(
        self, session: Session, *, transaction_id: TransactionHandle, timeout_ms: int | None
    ) -> Promise[None]:
        """Prepare a transaction of a query, which then waits for the commit of its epoch."""
        transaction = self._transaction(transaction_id)
        return self._broker.transacting.prepare(transaction, timeout_ms=timeout_ms)

    @operation(Action.WRITE, _transactional_id_of_transaction, owner=_coordinator_of_transaction)
    def commit(self, session: Session, *, transaction_id: TransactionHandle) -> Promise[None]:
        """Commit; resolves when every reader can see all of it."""
        return self._broker.transacting.commit(self._transaction(transaction_id))

    @operation(Action.WRITE, _transactional_id_of_transaction, owner=_coordinator_of_transaction)
    def abort(self, session: Session, *, transaction_id: TransactionHandle) -> Promise[None]:
        """Abort; resolves when all participants have discarded it."""
        return self._broker.transacting.abort(self._transaction(transaction_id))

    # By transactional id

    @operation(Action.DESCRIBE, named_by_owner, merge=_one_page, is_reading=True)
    async def list(
        self,
        session: Session,
        *,
        states: frozenset[TransactionState] = frozenset(),
        producer_ids: frozenset[int] = frozenset(),
        older_than_ms: int = -1,
        prefix: NamePrefix = "",
        pattern: NamePattern = "",
        limit: int | None = None,
        after: NamePrefix = "",
    ) -> TransactionPage:
        """Return the transactions that match all given filters, by transactional id.

        With `after`, those after a transactional id; their total counts the ones before it too.
        """
        found = [
            view
            for view in self._broker.transactions.all(
                states=states,
                producer_ids=producer_ids,
                older_than_ms=older_than_ms,
                pattern=pattern,
            )
            if view.transactional_id.startswith(prefix)
            and self._may(
                session,
                Action.DESCRIBE,
                Resource(ResourceKind.TRANSACTIONAL_ID, view.transactional_id),
            )
        ]
        total = len(found)
        later = [one for one in found if one.transactional_id > after] if after else found
        later.sort(key=lambda one: one.transactional_id)
        write = self._broker.transacting.ids.write
        return TransactionPage(
            [
                Listed(write(Transaction(view.transactional_id, view.identity)), view)
                for view in (self._visible(session, one) for one in later[:limit])
            ],
            total,
        )

    @operation(Action.DESCRIBE, transactional_id(), owner=_coordinator, is_reading=True)
    async def describe(
        self, session: Session, *, transactional_id: TransactionalId
    ) -> TransactionView:
        """Return the newest transaction of a transactional id."""
        found = self._broker.transactions.describe(transactional_id)
        return self._visible(session, found)

    @operation(Action.DESCRIBE, named_by_owner)
    async def find_coordinators(
        self, session: Session, *, transactional_ids: Sequence[TransactionalId]
    ) -> dict[TransactionalId, int | GoQueueError]:
        """Return the coordinator of each transactional id; -1 if there is none."""
        denied: Coordinators = {}
        for name in transactional_ids:
            resource = Resource(ResourceKind.TRANSACTIONAL_ID, name)
            if not self._may(session, Action.DESCRIBE, resource):
                denied[name] = self._denial(session, Action.DESCRIBE, resource)
        transactions = self._broker.transactions
        found = await find_coordinators(
            self._broker,
            session.listener,
            await transactions.ensure_topic(),
            transactions.partition_of,
            [name for name in transactional_ids if name not in denied],
        )
        return {**found, **denied}

    # Producers

    @operation(Action.IDEMPOTENT_WRITE, named_by_owner)
    async def new_producer(self, session: Session) -> ProducerIdentity:
        """Return the identity of a new producer without transactions.

        It needs the permission of the cluster, or that to write to some topic.
        """
        if not self._authoriser.allows_any(session, Action.WRITE, ResourceKind.TOPIC):
            self._check(session, Action.IDEMPOTENT_WRITE, CLUSTER)
        return ProducerIdentity(await self._broker.new_producer_id(), 0)

    @operation(Action.WRITE, transactional_id(), owner=_coordinator)
    def initialise(
        self,
        session: Session,
        *,
        transactional_id: TransactionalId,
        timeout_ms: int,
        producer_id: int,
        producer_epoch: int,
    ) -> Promise[ProducerIdentity]:
        """Return the identity of the producer of a transactional id, fencing earlier ones."""
        return self._broker.transactions.initialise(
            transactional_id,
            timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    @operation(Action.WRITE, _producer_or_node, owner=_coordinator)
    async def add_partitions(
        self,
        session: Session,
        *,
        transactional_id: TransactionalId,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        is_from_node: bool = False,
    ) -> Joined:
        """Add partitions to a transaction: all of them, or none."""
        objections = self._objections(session, partitions, is_from_node=is_from_node)
        if any(objections):
            return Joined(objections, is_attempted=False)
        await self._broker.transactions.add_partitions(transactional_id, identity, partitions)
        return Joined(objections)

    @operation(Action.WRITE, _producer_or_node, owner=_coordinator, is_reading=True)
    async def verify_partitions(
        self,
        session: Session,
        *,
        transactional_id: TransactionalId,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        is_from_node: bool = False,
    ) -> Joined:
        """Check whether a producer may write to partitions in its transaction now."""
        objections = self._objections(session, partitions, is_from_node=is_from_node)
        if any(objections):
            return Joined(objections, is_attempted=False)
        verify = self._broker.transactions.verify
        return Joined([verify(transactional_id, identity, one) for one in partitions])

    @operation(Action.WRITE, transactional_id(), also(Action.READ, group()), owner=_coordinator)
    def add_group(
        self,
        session: Session,
        *,
        transactional_id: TransactionalId,
        identity: ProducerIdentity,
        group: GroupName,
    ) -> Promise[None]:
        """Add the offsets of a stream group to the transaction."""
        return self._broker.transactions.add_group(transactional_id, identity, group)

    @operation(
        Action.WRITE,
        transactional_id(),
        also(Action.READ, group("call.group_id")),
        owner=coordinator_of_call,
    )
    async def commit_group_offsets(
        self,
        session: Session,
        *,
        transactional_id: TransactionalId,
        identity: ProducerIdentity,
        call: CommitOffsets,
        joins_transaction: bool,
    ) -> OffsetErrors:
        """Commit offsets in the transaction, at the coordinator of the group.

        The group must already take part, unless `joins_transaction` adds it now.
        """
        refused, accepted = self._checked(session, call.offsets)
        if not accepted:
            return OffsetErrors(refused)
        try:
            result = await self._broker.transactions.commit_offsets(
                transactional_id,
                identity,
                msgspec.structs.replace(call, offsets=accepted),
                joins_transaction=joins_transaction,
            )
        except GoQueueError as error:
            if not refused:
                raise
            # Missing partitions get that error, whatever else is wrong.
            return OffsetErrors({(one.topic, one.partition): error for one in accepted} | refused)
        return OffsetErrors(refused | result.errors)

    @operation(Action.WRITE, transactional_id(), owner=_coordinator)
    def end(
        self,
        session: Session,
        *,
        transactional_id: TransactionalId,
        identity: ProducerIdentity,
        is_commit: bool,
        bumps_epoch: bool,
    ) -> Promise[ProducerIdentity]:
        """Commit or abort; resolves with the producer's next identity when this is durable."""
        return self._broker.transactions.end(
            transactional_id, identity, is_commit=is_commit, bumps_epoch=bumps_epoch
        )

    # Partitions

    @operation(Action.CLUSTER_ACTION, named_by_owner)
    async def write_markers(
        self,
        session: Session,
        *,
        identity: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        is_commit: bool,
        coordinator_epoch: int,
    ) -> Outcomes:
        """End a transaction in partitions that this node leads; return an error per failed one.

        Nodes may, and administrators, who end hanging transactions.
        """
        if not self._may(session, Action.ALTER, CLUSTER):
            self._check(session, Action.CLUSTER_ACTION, CLUSTER)
        errors = await self._broker.transactions.write_markers(
            identity, partitions, is_commit=is_commit, coordinator_epoch=coordinator_epoch
        )
        return [errors[one] for one in partitions]

    @query(Action.READ, topic())
    def describe_producers(
        self, session: Session, *, topic: TopicName, partition: int
    ) -> Sequence[ProducerView]:
        """Return the producers of a partition led by this node, and their open transactions."""
        found = self._broker.topics.get(topic).partition(partition)
        producers = []
        for one in found.producers:
            opened = found.transactions.get(one.producer_id)
            first_offset = NO_TRANSACTION if opened is None else opened.first_offset
            producers.append(
                ProducerView(
                    one.producer_id,
                    one.epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.coordinator_epoch,
                    first_offset,
                )
            )
        return producers

    # Helpers

    def _visible(self, session: Session, view: TransactionView) -> TransactionView:
        """Leave out the partitions of topics that the session may not see."""
        if self._authoriser.is_open(session):
            return view
        seen = tuple(one for one in view.partitions if self._sees_topic(session, one.topic))
        return msgspec.structs.replace(view, partitions=seen)

    def _transaction(self, transaction_id: str) -> Transaction:
        return self._broker.transacting.ids.read(transaction_id)

    def _objections(
        self, session: Session, partitions: Iterable[TopicPartition], *, is_from_node: bool
    ) -> Outcomes:
        """Return why partitions cannot take part. Nodes may add internal ones; clients may not."""
        action = None if is_from_node else Action.WRITE
        objections = []
        for one in partitions:
            error = self._objection(session, action, one.topic, one.partition)
            if error is None and not is_from_node:
                is_internal = self._broker.topics.get(one.topic).is_internal
                error = InternalTopic(one.topic) if is_internal else None
            objections.append(error)
        return objections

    def _checked(
        self, session: Session, offsets: Iterable[OffsetToCommit]
    ) -> tuple[dict[tuple[str, int], GoQueueError], Sequence[OffsetToCommit]]:
        """Return the offsets that cannot be committed, with the reasons, and those that can."""
        refused: dict[tuple[str, int], GoQueueError] = {}
        accepted = []
        for one in offsets:
            error = self._objection(session, Action.READ, one.topic, one.partition)
            if error is None:
                accepted.append(one)
            else:
                refused[one.topic, one.partition] = error
        return refused, accepted

    def _objection(
        self, session: Session, action: Action | None, topic: str, partition: int
    ) -> GoQueueError | None:
        """Return why a session cannot access a partition: it is denied, or does not exist."""
        resource = Resource(ResourceKind.TOPIC, topic)
        if action is not None and not self._may(session, action, resource):
            return self._denial(session, action, resource)
        found = self._broker.topics.find(topic)
        if found is None:
            return UnknownTopic(topic)
        if not 0 <= partition < len(found.partitions):
            return UnknownPartition(TopicPartition(topic, partition))
        return None
