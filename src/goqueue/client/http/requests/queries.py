"""Queries: transactions that are prepared one by one and committed together for an epoch."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.client.http.moments import Duration, duration_ms
from goqueue.client.http.request import (
    Request,
    body_of,
    body_with,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.client.http.requests.transactions import TIMEOUT_SECONDS
from goqueue.model.queries import Attempt
from goqueue.wire.http.bodies import queries as bodies
from goqueue.wire.http.bodies.queries import EpochCommitted, ListedQuery, Query
from goqueue.wire.http.bodies.transactions import Begun

_read_query = reading(Query)
_read_queries = reading(bodies.Queries)
_read_begun = reading(Begun)
_read_committed = reading(EpochCommitted)


class QueryRequests:
    def open(self, query: str, *, run_name: str = "") -> Request[Query]:
        """Begin a run of a query; earlier runs are fenced, and their open transactions aborted.

        A run with a name may open the query again, and keeps its number.
        """
        body = body_with(run_name=run_name)
        return Request("POST", path_of("queries", query, "open"), _read_query, body=body)

    def list_all(
        self, *, match: str = "", limit: int = 100, after: str = ""
    ) -> Request[list[ListedQuery]]:
        """Return queries by name, those whose names contain a text.

        For the next page, `after` is the last query of this one.
        """
        query = query_of(bodies.ListQueries(match=match, limit=limit, cursor=after))
        return Request("GET", path_of("queries"), lambda data: _read_queries(data).queries, query)

    def describe(self, query: str) -> Request[Query]:
        """Return the newest run and the newest epoch of a query."""
        return Request("GET", path_of("queries", query), _read_query)

    def begin(self, attempt: Attempt, *, timeout: Duration = TIMEOUT_SECONDS) -> Request[Begun]:
        """Begin a transaction that is part of an epoch."""
        name, timeout_ms = attempt.transactional_id, duration_ms(timeout)
        body = body_with(transactional_id=name, timeout_ms=timeout_ms)
        return Request("POST", path_of("transactions"), _read_begun, body=body)

    def prepare(self, transaction_id: str, *, timeout: Duration | None = None) -> Request[None]:
        """Prepare the transaction: all is written, and it waits for the commit of its epoch."""
        timeout_ms = None if timeout is None else duration_ms(timeout)
        path = path_of("transactions", transaction_id, "prepare")
        return Request("POST", path, nothing, body=body_with(timeout_ms=timeout_ms))

    def commit(
        self,
        query: str,
        epoch: int,
        *,
        run: int,
        transactions: Sequence[str],
        is_last: bool = False,
    ) -> Request[EpochCommitted]:
        """Commit prepared transactions as one epoch, unless it is committed already.

        The response is sent when all readers can see its effects.
        """
        body = bodies.CommitEpoch(run=run, transactions=list(transactions), is_last=is_last)
        path = path_of("queries", query, "epochs", epoch, "commit")
        return Request("POST", path, _read_committed, body=body_of(body))
