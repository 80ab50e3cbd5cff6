"""Transactions: begin, publish, commit offsets, acknowledge, commit, abort, show."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from goqueue.broker.gate.areas.transactions import (
    Addressed,
    Listed,
    TransactionState,
    TransactionView,
)
from goqueue.model.errors import GoQueueError
from goqueue.wire.http.bodies import groups as group_bodies
from goqueue.wire.http.bodies import messages as message_bodies
from goqueue.wire.http.bodies import queues as queue_bodies
from goqueue.wire.http.bodies import transactions as bodies
from goqueue.wire.http.handlers.offsets import committed, to_commit
from goqueue.wire.http.handlers.publishing import published_many
from goqueue.wire.http.handlers.receiving import settled
from goqueue.wire.http.messages import check_header_count, to_record

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call, Raw
    from goqueue.wire.http.front_end import FrontEnd

_STATES = {cast(bodies.TransactionState, one.name.lower()): one for one in TransactionState}
_OPEN = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARED,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    }
)
_NAMES = {state: name for name, state in _STATES.items()}


async def begin(front: FrontEnd, call: Call, body: bodies.Begin) -> bodies.Begun:
    begun = await front.gate.transactions.begin(
        call.session, transactional_id=body.transactional_id, timeout_ms=body.timeout_ms
    )
    return bodies.Begun(
        id=begun.id,
        transactional_id=begun.transactional_id,
        producer_id=begun.identity.producer_id,
        producer_epoch=begun.identity.epoch,
        timeout_ms=body.timeout_ms,
    )


async def list_all(
    front: FrontEnd, call: Call, query: bodies.ListTransactions
) -> bodies.Transactions:
    states = _OPEN if query.open else frozenset()
    page = await front.gate.transactions.list(
        call.session,
        states=states if query.state is None else frozenset({_STATES[query.state]}),
        producer_ids=frozenset(() if query.producer_id is None else (query.producer_id,)),
        older_than_ms=-1 if query.older_than_ms is None else query.older_than_ms,
        prefix=query.prefix,
        after=query.cursor,
        limit=query.limit + 1,
    )
    shown = [_listed(one) for one in page.transactions[: query.limit]]
    is_last = len(page.transactions) <= query.limit
    return bodies.Transactions(
        transactions=shown,
        cursor="" if is_last else shown[-1].transactional_id,
        total=page.total,
    )


async def show(front: FrontEnd, call: Call, _: object) -> bodies.TransactionShown:
    transaction_id = call.text("transaction_id")
    found = await front.gate.transactions.show(call.session, transaction_id=transaction_id)
    view = found.view
    return bodies.TransactionShown(
        id=transaction_id,
        transactional_id=view.transactional_id,
        state=_NAMES[view.state],
        producer_id=view.identity.producer_id,
        producer_epoch=view.identity.epoch,
        timeout_ms=view.timeout_ms,
        started_at=_started_at(view),
        updated_at=view.updated_ms,
        participants=_participants(view),
        superseded=found.is_superseded,
    )


async def publish(
    front: FrontEnd, call: Call, body: bodies.PublishInTransaction
) -> message_bodies.PublishedMany:
    check_header_count(body.messages)
    now_ms = front.now_ms()
    messages: list[Addressed] = []
    refused: dict[int, GoQueueError] = {}
    for place, one in enumerate(body.messages):
        try:
            record = to_record(one, now_ms=now_ms, trace_parent=call.trace_parent)
            messages.append(Addressed(one.topic, record, one.partition))
        except GoQueueError as error:
            refused[place] = error
    published = await front.gate.transactions.publish(
        call.session,
        transaction_id=call.text("transaction_id"),
        messages=messages,
        unreadable={place: str(error) for place, error in refused.items()},
        now_ms=now_ms,
    )
    results = published.results
    if refused:
        # The error of this front end names the field that is wrong.
        results = [refused.get(place, result) for place, result in enumerate(results)]
    return published_many([one.topic for one in body.messages], results)


async def commit_offsets(
    front: FrontEnd, call: Call, body: bodies.CommitOffsets
) -> group_bodies.Committed:
    result = front.gate.transactions.commit_offsets(
        call.session,
        transaction_id=call.text("transaction_id"),
        call=to_commit(body.group, body),
    )
    return await committed(body.group, body, result)


async def ack(
    front: FrontEnd, call: Call, body: bodies.AckInTransaction
) -> queue_bodies.Settled | Raw:
    outcomes = front.gate.transactions.ack(
        call.session,
        transaction_id=call.text("transaction_id"),
        group=body.group,
        receipts=body.receipts,
    )
    return await settled(body.receipts, outcomes)


async def commit(front: FrontEnd, call: Call, _: object) -> bodies.Ended:
    transaction_id = call.text("transaction_id")
    await front.gate.transactions.commit(call.session, transaction_id=transaction_id)
    return bodies.Ended(id=transaction_id, outcome="committed")


async def abort(front: FrontEnd, call: Call, _: object) -> bodies.Ended:
    transaction_id = call.text("transaction_id")
    await front.gate.transactions.abort(call.session, transaction_id=transaction_id)
    return bodies.Ended(id=transaction_id, outcome="aborted")


def _listed(one: Listed) -> bodies.Transaction:
    view = one.view
    return bodies.Transaction(
        id=one.id,
        transactional_id=view.transactional_id,
        state=_NAMES[view.state],
        producer_id=view.identity.producer_id,
        producer_epoch=view.identity.epoch,
        timeout_ms=view.timeout_ms,
        started_at=_started_at(view),
        updated_at=view.updated_ms,
        participants=_participants(view),
    )


def _started_at(view: TransactionView) -> int | None:
    return view.started_ms if view.started_ms >= 0 else None


def _participants(view: TransactionView) -> list[bodies.Participant]:
    return [bodies.Participant(topic=one.topic, partition=one.partition) for one in view.partitions]
