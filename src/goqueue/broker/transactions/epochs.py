"""Queries that commit whole epochs: many prepared transactions, decided by one record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from goqueue.broker.transactions.transactions import Transactions
from goqueue.loop.promise import Promise, start
from goqueue.model.names import ProducerIdentity
from goqueue.model.queries import check_query_id, query_name, read_attempt
from goqueue.transactions import CommitEpoch, EpochOutcome, QueryView, TransactionState

OPEN_STATES = frozenset({TransactionState.ONGOING, TransactionState.PREPARED})


class Epochs:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def open(self, query_id: str, run_name: str = "") -> Promise[QueryView]:
        """Begin a run of a query; earlier runs are fenced, and their open transactions aborted.

        A named run may be opened again and keeps its number; without a name, each call begins a new
        run.
        """
        check_query_id(query_id)
        promise: Promise[QueryView] = Promise()
        start(self._open(query_id, run_name), promise.settle)
        return promise

    async def _open(self, query_id: str, run_name: str) -> QueryView:
        await self._transactions.ensure_topic()
        name = query_name(query_id)
        self._transactions.check_room(name)
        opened: Promise[QueryView] = self._transactions.call(
            name, lambda one, **at: one.open_query(query_id, run_name, **at)
        )
        return await opened

    def commit(
        self,
        query_id: str,
        *,
        run: int,
        epoch: int,
        prepared: Sequence[tuple[str, ProducerIdentity]],
        is_last: bool = False,
    ) -> Promise[EpochOutcome]:
        """Commit prepared transactions as one; resolves when all are visible to every reader.

        If the epoch was already committed with other transactions, abort these.
        """
        call = CommitEpoch(
            query_id=query_id, run=run, epoch=epoch, prepared=tuple(prepared), is_last=is_last
        )
        return self._transactions.call(
            query_name(query_id), lambda one, **at: one.commit_epoch(call, **at)
        )

    def all(self) -> list[tuple[QueryView, int]]:
        """Return the queries of this node, each with the number of its open transactions."""
        writers: Counter[str] = Counter()
        for view in self._transactions.all(states=OPEN_STATES):
            attempt = read_attempt(view.transactional_id)
            if attempt is not None:
                writers[attempt.query_id] += 1
        return [(one, writers[one.query_id]) for one in self._transactions.queries()]

    def describe(self, query_id: str) -> QueryView:
        """Raise UnknownTransaction when there is no such query."""
        return self._transactions.coordinator_of(query_name(query_id)).describe_query(query_id)
