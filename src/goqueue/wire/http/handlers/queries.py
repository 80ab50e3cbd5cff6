"""Streaming queries: open, prepare a transaction, commit an epoch, show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.gate.areas.queries import QueryView
from goqueue.wire.http.bodies import queries as bodies
from goqueue.wire.http.fields import INT64_MAX
from goqueue.wire.http.overviews.slices import cursor_after

if TYPE_CHECKING:
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd


async def prepare(front: FrontEnd, call: Call, body: bodies.Prepare) -> bodies.Prepared:
    transaction_id = call.text("transaction_id")
    await front.gate.transactions.prepare(
        call.session, transaction_id=transaction_id, timeout_ms=body.timeout_ms
    )
    return bodies.Prepared(id=transaction_id)


async def open_query(front: FrontEnd, call: Call, body: bodies.OpenQuery) -> bodies.Query:
    opened = await front.gate.queries.open(
        call.session, query_id=call.text("query"), run_name=body.run_name
    )
    return _shown(opened)


async def list_all(front: FrontEnd, call: Call, query: bodies.ListQueries) -> bodies.Queries:
    page = await front.gate.queries.list(
        call.session, match=query.match.lower(), after=query.cursor, limit=query.limit
    )
    found = [
        bodies.ListedQuery(**_fields(one.query), writers=one.writers)  # type: ignore[arg-type]
        for one in page.queries
    ]
    cursor = cursor_after([one.query for one in found], is_last=page.is_last)
    return bodies.Queries(queries=found, cursor=cursor, total=page.total)


async def show(front: FrontEnd, call: Call, _: object) -> bodies.Query:
    return _shown(await front.gate.queries.show(call.session, query_id=call.text("query")))


async def commit(front: FrontEnd, call: Call, body: bodies.CommitEpoch) -> bodies.EpochCommitted:
    query_id, epoch = call.text("query"), call.number("epoch", most=INT64_MAX)
    outcome = await front.gate.queries.commit_epoch(
        call.session,
        query_id=query_id,
        run=body.run,
        epoch=epoch,
        transaction_ids=body.transactions,
        is_last=body.is_last,
    )
    return bodies.EpochCommitted(
        query=query_id,
        epoch=epoch,
        outcome="already_committed" if outcome.is_repeated else "committed",
        epoch_newest=outcome.epoch,
    )


def _shown(view: QueryView) -> bodies.Query:
    return bodies.Query(**_fields(view))  # type: ignore[arg-type]


def _fields(view: QueryView) -> dict[str, object]:
    return {
        "query": view.query_id,
        "run": view.run,
        "run_name": view.run_name,
        "epoch": view.epoch if view.epoch >= 0 else None,
        "is_closed": view.is_closed,
        "updated_at": view.updated_ms,
    }
