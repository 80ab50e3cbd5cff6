"""Atomic writes across partitions: who may write in which transaction, and how it ends.

A transaction belongs to a transactional id, which identifies a producer across restarts. Its
participants are partitions of any kind. This room decides who the producer is now, which partitions
participate, and the outcome of the transaction. It writes no markers, reads no partitions, and
never reverses a decision. It does not read a clock, generate an id or wait: time and ids are
arguments, and effects are returned.

One `Coordinator` owns all transactional ids of one partition of `__transaction_state`.

**Loading.** `replay(key, value)` for each record of the partition, oldest first, then
`loaded(now_ms)`. Decisions made before are carried out from there.

**Epochs.** Transactions of a query are prepared one by one and committed an epoch at a time, by one
record of the query: `open_query`, `prepare`, `commit_epoch`. Their names contain query, run and
epoch (see `goqueue.model.queries`).

**Calls.** `initialise`, `add_partitions`, `prepare`, `end`, `abort` and those of queries take a
`token` and `now_ms`. They return effects, or raise the `GoQueueError` that is the response. The
response to a token is a `Reply`, at once or among the effects of any later call, exactly once. A
call that finds the last transaction still completing waits a little, and is then refused with
`ConcurrentTransactions`. `verify`, `describe`, `all` and `of_producer` return directly.

**Effects.** `Reply(token, result)`. `Persist(write_id, key, value)`: append the record; when it is
durable call `persisted(write_id, now_ms)`, when it is refused `persist_failed(write_id, error,
now_ms)`. `WriteMarkers`: end the transaction in these partitions; call `marked` for each that is
done. All of these return effects.

**Time.** After any call, get `next_deadline_ms()` and call `tick(now_ms)` then. It aborts
transactions that time out and expires unused ids.
"""

from goqueue.transactions.calls import CommitEpoch, End, Initialise, Prepare
from goqueue.transactions.coordinator import Coordinator
from goqueue.transactions.effects import Effect, Persist, Reply, Token, WriteMarkers
from goqueue.transactions.limits import EPOCH_LAST
from goqueue.transactions.patterns import is_match
from goqueue.transactions.records import Standing
from goqueue.transactions.refusals import unknown, unknown_query, unmapped
from goqueue.transactions.transaction import Why
from goqueue.transactions.views import (
    EpochOutcome,
    QueryView,
    TransactionState,
    TransactionView,
)

__all__ = [
    "EPOCH_LAST",
    "CommitEpoch",
    "Coordinator",
    "Effect",
    "End",
    "EpochOutcome",
    "Initialise",
    "Persist",
    "Prepare",
    "QueryView",
    "Reply",
    "Standing",
    "Token",
    "TransactionState",
    "TransactionView",
    "Why",
    "WriteMarkers",
    "is_match",
    "unknown",
    "unknown_query",
    "unmapped",
]
