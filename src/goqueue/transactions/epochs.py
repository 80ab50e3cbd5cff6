"""Whole epochs: many prepared transactions of a query, committed by one record.

A query that restarts repeats its last epoch, perhaps divided differently. The record shows whether
that epoch is committed; if so, what the repetition wrote is aborted and nothing appears twice.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from goqueue.model.errors import GoQueueError, InvalidRequest, InvalidTransactionTimeout
from goqueue.model.names import ProducerIdentity
from goqueue.model.queries import EPOCH_MAX, check_query_id, read_attempt
from goqueue.transactions import steps
from goqueue.transactions.calls import CommitEpoch, Prepare
from goqueue.transactions.effects import Effect, Reply, Token
from goqueue.transactions.limits import (
    CONCURRENT_WAIT_MS,
    EPOCH_TRANSACTIONS_MAX,
    QUERY_CALLS_MAX,
    RUN_NAME_LENGTH_MAX,
    RUNS_REMEMBERED_MAX,
)
from goqueue.transactions.query import Query
from goqueue.transactions.query_registry import QueryRegistry
from goqueue.transactions.records import NOT_STARTED, Decided, QueryStanding, Standing
from goqueue.transactions.refusals import (
    busy,
    concurrent,
    fenced_run,
    misplaced,
    unknown_query,
    unprepared,
)
from goqueue.transactions.transaction import Parked, Transaction
from goqueue.transactions.views import (
    EpochOutcome,
    QueryView,
    TransactionState,
    TransactionView,
)


class Epochs(QueryRegistry):
    # Runs

    def open_query(
        self, query_id: str, run_name: str, *, token: Token, now_ms: int
    ) -> list[Effect]:
        """Begin a run of a query; earlier runs are fenced, and their open transactions aborted.

        A named run may be opened again and keeps its number. Without a name, each call begins a new
        run. The reply is the `QueryView`.
        """
        self._check_ready(query_id)
        check_query_id(query_id)
        if len(run_name) > RUN_NAME_LENGTH_MAX:
            raise InvalidRequest(f"The name of a run has at most {RUN_NAME_LENGTH_MAX} characters.")
        query = self._open_query(query_id)

        def handle(now_ms: int) -> None:
            self._begin_run(query, run_name, token, now_ms)

        return self._serve_query(query, handle, token, now_ms)

    def _begin_run(self, query: Query, run_name: str, token: Token, now_ms: int) -> None:
        standing = query.durable
        if standing is None:
            query.current = QueryStanding(run=1, run_name=run_name, updated_ms=now_ms)
        elif run_name and run_name in standing.past_runs:
            raise fenced_run(query.query_id, repr(run_name), standing.run)
        elif not run_name or run_name != standing.run_name:
            names = filter(None, (*standing.past_runs, standing.run_name))
            query.current = replace(
                standing,
                run=standing.run + 1,
                run_name=run_name,
                past_runs=tuple(names)[-RUNS_REMEMBERED_MAX:],
                is_closed=False,
                updated_ms=now_ms,
            )
        assert query.current is not None
        query.replies.append(Reply(token, _view(query.query_id, query.current)))

    def describe_query(self, query_id: str) -> QueryView:
        self._check_ready(query_id)
        query = self._queries.get(query_id)
        if query is None or query.durable is None:
            raise unknown_query(query_id)
        return _view(query_id, query.durable)

    def queries(self) -> list[QueryView]:
        """Return every query."""
        self._check_ready("*")
        return [
            _view(query_id, query.durable)
            for query_id, query in self._queries.items()
            if query.durable is not None
        ]

    def _check_attempt(self, transactional_id: str) -> None:
        """Refuse to begin a query's transaction in a run that could not commit it."""
        attempt = read_attempt(transactional_id)
        if attempt is None:
            return
        query = self._queries.get(attempt.query_id)
        if query is None or query.current is None:
            raise unknown_query(attempt.query_id)
        if attempt.run != query.current.run:
            raise fenced_run(attempt.query_id, str(attempt.run), query.current.run)

    # Preparing

    def _prepare(
        self, transaction: Transaction, standing: Standing, call: Prepare, now_ms: int
    ) -> None:
        timeout_ms_max = self.settings.prepared_timeout_ms_max
        if not 0 < call.timeout_ms <= timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"A prepared timeout cannot be {call.timeout_ms} ms: choose 1 to "
                f"{timeout_ms_max} (setting transactions.prepared_timeout_ms_max)."
            )
        if transaction.query_id is None:
            raise InvalidRequest(
                f"The transaction of {call.transactional_id!r} belongs to no query, so no epoch "
                "can commit it; commit it directly."
            )
        if standing.state is TransactionState.ONGOING:
            transaction.stage(steps.prepared(standing, call.timeout_ms, now_ms))
        elif standing.state is not TransactionState.PREPARED:
            raise misplaced(call.transactional_id, "prepared", standing.state)

    # Committing

    def commit_epoch(self, call: CommitEpoch, *, token: Token, now_ms: int) -> list[Effect]:
        """Commit these transactions as one; reply when all are visible to every reader.

        If the epoch is already committed, by these or by others, the reply reports that.
        """
        self._check_ready(call.query_id)
        _check_named(call)
        query = self._queries.get(call.query_id)
        if query is None:
            raise unknown_query(call.query_id)

        def handle(now_ms: int) -> None:
            self._commit(query, call, token, now_ms)

        return self._serve_query(query, handle, token, now_ms)

    def _commit(self, query: Query, call: CommitEpoch, token: Token, now_ms: int) -> None:
        standing = query.durable
        if standing is None:
            raise unknown_query(call.query_id)
        if call.run != standing.run:
            raise fenced_run(call.query_id, str(call.run), standing.run)
        if call.epoch <= standing.epoch:
            self._answer_repeated(query, standing, call, token, now_ms)
        elif query.unfinished:
            # The record that decided these is needed until their own records have the decision.
            self._park_in(query, token, now_ms, lambda now: self._commit(query, call, token, now))
        else:
            self._decide(query, standing, call, token, now_ms)

    def _answer_repeated(
        self,
        query: Query,
        standing: QueryStanding,
        call: CommitEpoch,
        token: Token,
        now_ms: int,
    ) -> None:
        decided = {(one.transactional_id, one.identity) for one in standing.decided}
        is_same = call.epoch == standing.epoch and set(call.prepared) == decided
        for name, identity in dict.fromkeys(call.prepared):
            if (name, identity) in decided:
                continue
            transaction = self._transactions.get(name)
            current = None if transaction is None else transaction.current
            if transaction is None or current is None or not current.is_open:
                continue
            if current.identity == identity:
                transaction.stage(steps.fenced_off(current, now_ms))
                self._touch(transaction)
        outcome = EpochOutcome(standing.epoch, is_repeated=not is_same)
        query.finishing.append(Reply(token, outcome))

    def _decide(
        self,
        query: Query,
        standing: QueryStanding,
        call: CommitEpoch,
        token: Token,
        now_ms: int,
    ) -> None:
        self.hold.check(now_ms)
        named = dict(call.prepared)
        deciding = [self._prepared(name, identity) for name, identity in named.items()]
        for transaction, prepared in deciding:
            # It is ahead of its log, as always; the record of the query makes it durable.
            transaction.current = steps.committed_with_epoch(prepared, now_ms)
            query.deciding.append(transaction)
        query.current = replace(
            standing,
            epoch=call.epoch,
            decided=tuple(Decided(name, *identity) for name, identity in named.items()),
            is_closed=call.is_last,
            updated_ms=now_ms,
        )
        query.finishing.append(Reply(token, EpochOutcome(call.epoch, is_repeated=False)))

    def _prepared(
        self, transactional_id: str, identity: tuple[int, int]
    ) -> tuple[Transaction, Standing]:
        """A transaction that the epoch may commit, and its state."""
        transaction = self._transactions.get(transactional_id)
        standing = None if transaction is None else transaction.current
        if transaction is None or standing is None or standing.identity != identity:
            raise unprepared(transactional_id, "it was aborted, or it timed out")
        if standing.state is not TransactionState.PREPARED:
            raise unprepared(transactional_id, f"its state is {standing.state}")
        if transaction.durable is not standing:
            raise concurrent(transactional_id)
        return transaction, standing

    def _committed_view(self, producer_id: int) -> TransactionView | None:
        """A forgotten transaction that the newest epoch of its query has committed."""
        for query in self._queries.values():
            standing = query.durable
            for one in () if standing is None else standing.decided:
                if standing is not None and one.producer_id == producer_id:
                    return TransactionView(
                        transactional_id=one.transactional_id,
                        state=TransactionState.COMPLETE_COMMIT,
                        identity=ProducerIdentity(producer_id, one.producer_epoch + 1),
                        timeout_ms=0,
                        started_ms=NOT_STARTED,
                        updated_ms=standing.updated_ms,
                        partitions=(),
                    )
        return None

    # Serving

    def _serve_query(
        self, query: Query, handle: Callable[[int], None], token: Token, now_ms: int
    ) -> list[Effect]:
        try:
            if len(query.waiting) >= QUERY_CALLS_MAX:
                raise busy(query.query_id)
            if query.is_writing:
                self._park_in(query, token, now_ms, handle)
            else:
                handle(now_ms)
        finally:
            self._touched_queries[query] = None
        return self._finish(now_ms)

    def _park_in(self, query: Query, token: Token, now_ms: int, run: Callable[[int], None]) -> None:
        def run_or_refuse(now_ms: int) -> None:
            try:
                run(now_ms)
            except GoQueueError as error:
                query.replies.append(Reply(token, error))

        query.parked.append(Parked(token, now_ms + CONCURRENT_WAIT_MS, run_or_refuse))


def _check_named(call: CommitEpoch) -> None:
    if not 0 <= call.epoch <= EPOCH_MAX:
        raise InvalidRequest(f"{call.epoch} is not a valid epoch; epochs start at 0.")
    if len(call.prepared) > EPOCH_TRANSACTIONS_MAX:
        raise InvalidRequest(
            f"An epoch may have {EPOCH_TRANSACTIONS_MAX} transactions, not {len(call.prepared)}; "
            "write it with fewer tasks."
        )
    for name, _ in call.prepared:
        attempt = read_attempt(name)
        if attempt is None or attempt[:3] != (call.query_id, call.run, call.epoch):
            raise InvalidRequest(
                f"Transaction {name!r} does not belong to epoch {call.epoch} of run {call.run} of "
                f"query {call.query_id!r}."
            )


def _view(query_id: str, standing: QueryStanding) -> QueryView:
    return QueryView(
        query_id=query_id,
        run=standing.run,
        run_name=standing.run_name,
        epoch=standing.epoch,
        is_closed=standing.is_closed,
        updated_ms=standing.updated_ms,
    )
