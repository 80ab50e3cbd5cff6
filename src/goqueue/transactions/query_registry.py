"""The queries of one coordinator: loading, completing writes, timers and deletion.

The record of a query decides all transactions of its newest epoch. So they have no decision record
of their own: they are decided when the query's record is durable, and on replay a prepared
transaction that is in its query's record is a committed one.
"""

from __future__ import annotations

from goqueue.config import TransactionSettings
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.model.queries import query_of_name, read_attempt
from goqueue.transactions import steps
from goqueue.transactions.deadlines import Deadlines
from goqueue.transactions.effects import Effect, Persist, Reply
from goqueue.transactions.limits import FAILED_WRITE_REST_MS
from goqueue.transactions.query import Query
from goqueue.transactions.records import (
    NO_QUERY_EPOCH,
    QueryStanding,
    Standing,
    decode_query,
    decode_query_key,
    encode_query,
    encode_query_key,
)
from goqueue.transactions.refusals import busy
from goqueue.transactions.registry import TransactionRegistry
from goqueue.transactions.transaction import NO_WRITE, Transaction
from goqueue.transactions.views import TransactionState


class QueryRegistry(TransactionRegistry):
    def __init__(self, settings: TransactionSettings) -> None:
        super().__init__(settings)
        self._queries: dict[str, Query] = {}
        self._attempts: dict[str, dict[str, Transaction]] = {}  # the transactions of each query
        self._query_deadlines = Deadlines()
        self._query_writes: dict[int, Query] = {}
        self._touched_queries: dict[Query, None] = {}

    def __contains__(self, name: str) -> bool:
        """Whether this transactional id, or this query with its key prefix, exists."""
        is_query = query_of_name(name) in self._queries
        return is_query or super().__contains__(name)

    def __len__(self) -> int:
        return super().__len__() + len(self._queries)

    # Loading and resigning

    def replay(self, key: bytes, value: bytes | None) -> None:
        query_id = decode_query_key(key)
        if query_id is None:
            super().replay(key, value)
            return
        query = self._open_query(query_id)
        query.durable = query.current = None if value is None else decode_query(value)
        self._forget_query_if_void(query)

    def loaded(self, now_ms: int) -> list[Effect]:
        for query in self._queries.values():
            if query.durable is not None:
                self._find_decided(query, query.durable)
                self._abort_abandoned(query, query.durable, now_ms)
            self._touched_queries[query] = None
        return super().loaded(now_ms)

    def _find_decided(self, query: Query, standing: QueryStanding) -> None:
        for one in standing.decided:
            transaction = self._transactions.get(one.transactional_id)
            if transaction is None or transaction.durable is None:
                continue
            prepared = transaction.durable
            if prepared.state is TransactionState.PREPARED and prepared.identity == one.identity:
                committed = steps.committed_with_epoch(prepared, standing.updated_ms)
                self._settle(transaction, committed)
                transaction.current = committed
                query.unfinished.add(one.transactional_id)

    # Completing writes

    def persisted(self, write_id: int, now_ms: int) -> list[Effect]:
        query = self._query_writes.pop(write_id, None)
        if query is None:
            return super().persisted(write_id, now_ms)
        query.write_id = NO_WRITE
        query.durable = query.current
        deciding, query.deciding = query.deciding, []
        for transaction in deciding:
            self._settle(transaction, transaction.current)
            query.unfinished.add(transaction.transactional_id)
            self._touch(transaction)
        if query.durable is not None:
            self._abort_abandoned(query, query.durable, now_ms)
        self._touched_queries[query] = None
        return self._finish(now_ms)

    def persist_failed(self, write_id: int, error: GoQueueError, now_ms: int) -> list[Effect]:
        query = self._query_writes.pop(write_id, None)
        if query is None:
            return super().persist_failed(write_id, error, now_ms)
        query.write_id = NO_WRITE
        query.current = query.durable
        query.rest_until_ms = now_ms + FAILED_WRITE_REST_MS
        deciding, query.deciding = query.deciding, []
        for transaction in deciding:
            transaction.current = transaction.durable
            self._touch(transaction)
        refused = [Reply(one.token, error) for one in (*query.replies, *query.finishing)]
        query.replies, query.finishing = [], []
        self._touched_queries[query] = None
        return [*refused, *self._finish(now_ms)]

    def _settle(self, transaction: Transaction, standing: Standing | None) -> None:
        super()._settle(transaction, standing)
        query = self._queries.get(transaction.query_id or "")
        if query is not None and not (standing is not None and standing.is_preparing):
            query.unfinished.discard(transaction.transactional_id)
            self._touched_queries[query] = None

    def _abort_abandoned(self, query: Query, standing: QueryStanding, now_ms: int) -> None:
        """Abort transactions of an earlier run, or of a committed epoch: they can never commit."""
        for name, transaction in self._attempts.get(query.query_id, {}).items():
            attempt = read_attempt(name)
            current = transaction.current
            if attempt is None or current is None or current.is_preparing:
                continue
            if attempt.run < standing.run or attempt.epoch <= standing.epoch:
                is_open = current.is_open
                transaction.stage(steps.fenced_off(current, now_ms) if is_open else None)
                self._touch(transaction)

    # Time

    def next_deadline_ms(self) -> int | None:
        deadlines = (super().next_deadline_ms(), self._query_deadlines.next_ms())
        known = [one for one in deadlines if one is not None]
        return min(known, default=None) if self.is_loaded else None

    def tick(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        while self.is_loaded and (name := self._query_deadlines.pop_due(now_ms)) is not None:
            query = self._queries.get(name)
            if query is None:
                continue
            late = [one for one in query.parked if one.until_ms <= now_ms]
            query.parked = [one for one in query.parked if one.until_ms > now_ms]
            effects += [Reply(one.token, busy(name)) for one in late]
            expiry_ms = self._expiry_ms(query)
            if expiry_ms is not None and expiry_ms <= now_ms:
                query.current = None
            self._touched_queries[query] = None
        return [*effects, *super().tick(now_ms)]

    def _expiry_ms(self, query: Query) -> int | None:
        """When an unused query is forgotten."""
        standing = query.durable
        if standing is None or query.is_writing or query.unfinished:
            return None
        # Only a query that continues may need to find that its last epoch is committed.
        is_needed = standing.epoch != NO_QUERY_EPOCH and not standing.is_closed
        settings = self.settings
        keep_ms = settings.query_expiration_ms if is_needed else settings.id_expiration_ms
        return max(standing.updated_ms + keep_ms, query.rest_until_ms)

    # Serving

    def _finish(self, now_ms: int) -> list[Effect]:
        effects = super()._finish(now_ms)
        while self._touched_queries and self.is_loaded:
            query = next(iter(self._touched_queries))
            del self._touched_queries[query]
            self._advance(query, effects, now_ms)
            effects += super()._finish(now_ms)
        return effects

    def _advance(self, query: Query, effects: list[Effect], now_ms: int) -> None:
        self._answer(query, effects)
        parked, query.parked = query.parked, []
        for call in parked:
            if query.is_writing:
                query.parked.append(call)
            else:
                call.run(now_ms)
        self._answer(query, effects)  # waiting calls
        if query.is_writing and query.write_id == NO_WRITE:
            effects.append(self._write_query(query))
        deadlines = [one.until_ms for one in query.parked]
        if (expiry_ms := self._expiry_ms(query)) is not None:
            deadlines.append(expiry_ms)
        self._query_deadlines.set(query.query_id, min(deadlines, default=None))
        self._forget_query_if_void(query)

    def _answer(self, query: Query, effects: list[Effect]) -> None:
        """Reply to all calls whose results can no longer be undone."""
        if not query.is_writing:
            effects += query.replies
            query.replies = []
            if not query.unfinished:
                effects += query.finishing
                query.finishing = []

    def _write_query(self, query: Query) -> Persist:
        self._last_write_id += 1
        query.write_id = self._last_write_id
        self._query_writes[query.write_id] = query
        value = None if query.current is None else encode_query(query.current)
        return Persist(query.write_id, encode_query_key(query.query_id), value)

    def _open_query(self, query_id: str) -> Query:
        query = self._queries.get(query_id)
        if query is None:
            query = self._queries[query_id] = Query(query_id)
        return query

    def _forget_query_if_void(self, query: Query) -> None:
        if query.is_forgettable:
            self._queries.pop(query.query_id, None)
            self._query_deadlines.set(query.query_id, None)

    # Transactions of queries

    def _open(self, transactional_id: str) -> Transaction:
        transaction = super()._open(transactional_id)
        if transaction.query_id is None and (query_id := _query_of(transactional_id)) is not None:
            transaction.query_id = query_id
            self._attempts.setdefault(query_id, {})[transactional_id] = transaction
        return transaction

    def _forget_if_void(self, transaction: Transaction) -> None:
        super()._forget_if_void(transaction)
        query_id = transaction.query_id
        is_forgotten = transaction.transactional_id not in self._transactions
        if query_id is not None and is_forgotten and query_id in self._attempts:
            self._attempts[query_id].pop(transaction.transactional_id, None)
            if not self._attempts[query_id]:
                del self._attempts[query_id]


def _query_of(transactional_id: str) -> str | None:
    try:
        attempt = read_attempt(transactional_id)
    except InvalidRequest:
        return None  # Written by another version; it ends like any other.
    return None if attempt is None else attempt.query_id
