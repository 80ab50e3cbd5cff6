"""Queries: open, prepare a transaction, commit an epoch, look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.transactions import QueryView
from goqueue.wire.http.bodies import queries as bodies
from goqueue.wire.http.fields import INT64_MAX

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def prepare(front: FrontEnd, call: Call, body: bodies.Prepare) -> bodies.Prepared:
    transacting = front.broker.transacting
    transaction = transacting.ids.read(call.text("transaction_id"))
    await transacting.prepare(transaction, timeout_ms=body.timeout_ms)
    return bodies.Prepared(id=call.text("transaction_id"))


async def open_query(front: FrontEnd, call: Call, body: bodies.OpenQuery) -> bodies.Query:
    return _shown(await front.broker.epochs.open(call.text("query"), body.run_name))


def show(front: FrontEnd, call: Call, _: object) -> bodies.Query:
    return _shown(front.broker.epochs.describe(call.text("query")))


async def commit(front: FrontEnd, call: Call, body: bodies.CommitEpoch) -> bodies.EpochCommitted:
    query_id, epoch = call.text("query"), call.number("epoch", most=INT64_MAX)
    ids = front.broker.transacting.ids
    outcome = await front.broker.epochs.commit(
        query_id,
        run=body.run,
        epoch=epoch,
        prepared=[ids.read(text) for text in body.transactions],
        is_last=body.is_last,
    )
    return bodies.EpochCommitted(
        query=query_id,
        epoch=epoch,
        outcome="already_committed" if outcome.is_repeated else "committed",
        epoch_newest=outcome.epoch,
    )


def _shown(view: QueryView) -> bodies.Query:
    return bodies.Query(
        query=view.query_id,
        run=view.run,
        run_name=view.run_name,
        epoch=view.epoch if view.epoch >= 0 else None,
        is_closed=view.is_closed,
        updated_at=view.updated_ms,
    )
