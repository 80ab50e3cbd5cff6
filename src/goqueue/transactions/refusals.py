"""Refusals, with the texts that callers see."""

from __future__ import annotations

from goqueue.model.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    UnknownTransaction,
)
from goqueue.model.names import ProducerIdentity
from goqueue.transactions.views import TransactionState


def concurrent(transactional_id: str) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        f"The last transaction of {transactional_id!r} is still being completed; retry soon."
    )


def fenced(transactional_id: str, identity: ProducerIdentity) -> FencedProducer:
    return FencedProducer(
        f"Epoch {identity.epoch} of producer {identity.producer_id} is fenced: its transaction "
        f"timed out, or another producer has taken over the transactional id {transactional_id!r}."
    )


def unmapped(transactional_id: str, producer_id: int) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(
        f"Producer id {producer_id} does not belong to the transactional id "
        f"{transactional_id[:260]!r}; initialise the producer again."
    )


def unknown(transactional_id: str) -> UnknownTransaction:
    return UnknownTransaction(
        f"There is no transaction of the transactional id {transactional_id[:260]!r}."
    )


def misplaced(transactional_id: str, what: str, state: TransactionState) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"The transaction of {transactional_id!r} cannot be {what}: its state is {state}."
    )


def unprepared(transactional_id: str, why: str) -> InvalidTransactionState:
    return InvalidTransactionState(
        f"The epoch cannot be committed: its transaction {transactional_id!r} is not prepared "
        f"({why}). Write the whole epoch again."
    )


def unknown_query(query_id: str) -> UnknownTransaction:
    return UnknownTransaction(f"There is no query {query_id[:260]!r}; open it first.")


def fenced_run(query_id: str, run: str, newest: int) -> FencedProducer:
    return FencedProducer(
        f"Run {run} of query {query_id!r} is not the newest, which is {newest}: another driver has "
        "taken the query over."
    )


def busy(query_id: str) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        f"The last call of query {query_id!r} is still being carried out; retry soon."
    )
