"""Transactions: begin, publish, commit offsets, acknowledge, commit, abort, look."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from goqueue.broker.transactions.ids import Transaction
from goqueue.broker.transactions.publishing import Addressed, all_refused
from goqueue.model.errors import GoQueueError
from goqueue.model.names import ProducerIdentity
from goqueue.transactions import TransactionState, TransactionView
from goqueue.wire.http.bodies import groups as group_bodies
from goqueue.wire.http.bodies import messages as message_bodies
from goqueue.wire.http.bodies import queues as queue_bodies
from goqueue.wire.http.bodies import transactions as bodies
from goqueue.wire.http.handlers.offsets import commit_in
from goqueue.wire.http.handlers.publishing import published_many
from goqueue.wire.http.handlers.queues import settled
from goqueue.wire.http.messages import check_header_count, to_record

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call, Raw
    from goqueue.wire.http.front_end import FrontEnd

_STATES = {cast(bodies.TransactionState, one.name.lower()): one for one in TransactionState}
_NAMES = {state: name for name, state in _STATES.items()}
_ENDING = frozenset(TransactionState) - {TransactionState.EMPTY, TransactionState.ONGOING}


async def begin(front: FrontEnd, call: Call, body: bodies.Begin) -> bodies.Begun:
    transacting = front.broker.transacting
    begun = await transacting.begin(body.transactional_id, timeout_ms=body.timeout_ms)
    return bodies.Begun(
        id=transacting.ids.write(begun),
        transactional_id=begun.transactional_id,
        producer_id=begun.identity.producer_id,
        producer_epoch=begun.identity.epoch,
        timeout_ms=body.timeout_ms,
    )


def list_all(front: FrontEnd, call: Call, query: bodies.ListTransactions) -> bodies.Transactions:
    found = front.broker.transactions.all(
        states=() if query.state is None else (_STATES[query.state],),
        producer_ids=() if query.producer_id is None else (query.producer_id,),
        older_than_ms=-1 if query.older_than_ms is None else query.older_than_ms,
    )
    views = [one for one in found if one.transactional_id.startswith(query.prefix)]
    views.sort(key=lambda one: one.transactional_id)
    return bodies.Transactions(
        transactions=[_shown(front, one) for one in views[: query.limit]], total=len(views)
    )


def show(front: FrontEnd, call: Call, _: object) -> bodies.TransactionShown:
    asked = _transaction(front, call)
    view = front.broker.transactions.describe(asked.transactional_id)
    shown = _shown(front, view)
    return bodies.TransactionShown(
        id=call.text("transaction_id"),
        transactional_id=shown.transactional_id,
        state=shown.state,
        producer_id=shown.producer_id,
        producer_epoch=shown.producer_epoch,
        timeout_ms=shown.timeout_ms,
        started_at=shown.started_at,
        updated_at=shown.updated_at,
        participants=shown.participants,
        superseded=not _is_current(view, asked.identity),
    )


async def publish(
    front: FrontEnd, call: Call, body: bodies.PublishInTransaction
) -> message_bodies.PublishedMany:
    transaction = _transaction(front, call)
    check_header_count(body.messages)
    now_ms = front.now_ms()
    messages: list[Addressed] = []
    refused: dict[int, GoQueueError] = {}
    for place, one in enumerate(body.messages):
        try:
            messages.append(Addressed(one.topic, to_record(one, now_ms=now_ms), one.partition))
        except GoQueueError as error:
            refused[place] = error
    for name in {one.topic for one in messages}:
        try:
            await front.broker.topic_in_use(name)
        except GoQueueError as error:
            places = [place for place, one in enumerate(body.messages) if one.topic == name]
            refused |= dict.fromkeys(places, error)
    if refused:
        results = all_refused(len(body.messages), refused)
    else:
        results = await front.broker.transacting.publish(transaction, messages, now_ms=now_ms)
    return published_many([one.topic for one in body.messages], results)


async def commit_offsets(
    front: FrontEnd, call: Call, body: bodies.CommitOffsets
) -> group_bodies.Committed:
    return await commit_in(front, body.group, body, _transaction(front, call))


async def ack(
    front: FrontEnd, call: Call, body: bodies.AckInTransaction
) -> queue_bodies.Settled | Raw:
    transaction = _transaction(front, call)
    outcomes = front.broker.transacting.ack(transaction, body.group, body.receipts)
    return await settled(body.receipts, outcomes)


async def commit(front: FrontEnd, call: Call, _: object) -> bodies.Ended:
    await front.broker.transacting.commit(_transaction(front, call))
    return bodies.Ended(id=call.text("transaction_id"), outcome="committed")


async def abort(front: FrontEnd, call: Call, _: object) -> bodies.Ended:
    await front.broker.transacting.abort(_transaction(front, call))
    return bodies.Ended(id=call.text("transaction_id"), outcome="aborted")


def _transaction(front: FrontEnd, call: Call) -> Transaction:
    return front.broker.transacting.ids.read(call.text("transaction_id"))


def _shown(front: FrontEnd, view: TransactionView) -> bodies.Transaction:
    return bodies.Transaction(
        id=front.broker.transacting.ids.write(Transaction(view.transactional_id, view.identity)),
        transactional_id=view.transactional_id,
        state=_NAMES[view.state],
        producer_id=view.identity.producer_id,
        producer_epoch=view.identity.epoch,
        timeout_ms=view.timeout_ms,
        started_at=view.started_ms if view.started_ms >= 0 else None,
        updated_at=view.updated_ms,
        participants=[
            bodies.Participant(topic=one.topic, partition=one.partition) for one in view.partitions
        ],
    )


def _is_current(view: TransactionView, identity: ProducerIdentity) -> bool:
    """Whether the newest transaction is this one; its end gives the next epoch to the producer."""
    followed = ProducerIdentity(identity.producer_id, identity.epoch + 1)
    return view.identity == identity or (view.identity == followed and view.state in _ENDING)
