"""Transactions: begin, publish, acknowledge, commit offsets, end and describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goqueue.client.http.failures import error_of_problem
from goqueue.client.http.messages import Outgoing, encoded_to, transaction_body
from goqueue.client.http.moments import Duration, duration_ms
from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    body_with,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.client.http.requests.messages import Outcome, read_outcomes
from goqueue.client.http.requests.queues import Outcomes, read_settled
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.bodies import groups as group_bodies
from goqueue.wire.http.bodies import transactions as bodies
from goqueue.wire.http.bodies.transactions import (
    Begun,
    Transaction,
    TransactionShown,
    TransactionState,
)

TIMEOUT_SECONDS = 60.0

_read_begun = reading(Begun)
_read_transactions = reading(bodies.Transactions)
_read_transaction = reading(TransactionShown)
_read_committed = reading(group_bodies.Committed)


class TransactionRequests:
    def begin(
        self, transactional_id: str | None = None, *, timeout: Duration = TIMEOUT_SECONDS
    ) -> Request[Begun]:
        """Begin a transaction; the previous one of the same transactional id is aborted."""
        body = body_with(transactional_id=transactional_id, timeout_ms=duration_ms(timeout))
        return Request("POST", path_of("transactions"), _read_begun, body=body)

    def list_all(
        self,
        *,
        state: TransactionState | None = None,
        prefix: str = "",
        producer_id: int | None = None,
        older_than: Duration | None = None,
        limit: int = 1000,
        after: str = "",
    ) -> Request[list[Transaction]]:
        """Return the newest transaction of each transactional id, of every front end.

        For the next page, `after` is the last transactional id of this one.
        """
        query = bodies.ListTransactions(
            state=state,
            prefix=prefix,
            producer_id=producer_id,
            older_than_ms=None if older_than is None else duration_ms(older_than),
            limit=limit,
            cursor=after,
        )
        return Request("GET", path_of("transactions"), _transactions, query_of(query))

    def describe(self, transaction_id: str) -> Request[TransactionShown]:
        """Return one transaction with its participants."""
        return Request("GET", path_of("transactions", transaction_id), _read_transaction)

    def commit(self, transaction_id: str) -> Request[None]:
        """Commit; the response is sent when all readers can see its effects."""
        return Request("POST", path_of("transactions", transaction_id, "commit"), nothing)

    def abort(self, transaction_id: str) -> Request[None]:
        """Abort; nothing of it ever becomes visible."""
        return Request("POST", path_of("transactions", transaction_id, "abort"), nothing)

    def inside(self, transaction_id: str) -> InTransaction:
        """The requests in a transaction."""
        return InTransaction(transaction_id)


@dataclass(frozen=True, slots=True)
class InTransaction:
    """Requests in one transaction.

    If a response is lost, it is unknown whether the request was executed. A second attempt could
    execute it twice, so the error is raised, and the caller aborts.
    """

    transaction_id: str

    def encoded(self, topic: str, message: Outgoing) -> bytes:
        """Encode a message for `publish`."""
        return encoded_to(topic, message)

    def publish(self, parts: Sequence[bytes]) -> Request[list[Outcome]]:
        """Publish encoded messages; return an outcome for each."""
        return Request(
            "POST",
            self._path("publish"),
            read_outcomes,
            body=transaction_body(parts),
            repeat=Repeat.AMBIGUOUS,
        )

    def ack(self, group: str, receipts: Sequence[str]) -> Request[Outcomes]:
        """Acknowledge these messages with the commit; return None or the error for each."""
        body = body_with(group=group, receipts=list(receipts))
        return Request("POST", self._path("ack"), read_settled, body=body, repeat=Repeat.AMBIGUOUS)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str | None = None,
        member_epoch: int | None = None,
    ) -> Request[dict[TopicPartition, GoQueueError]]:
        """Commit offsets of a stream group; return the error of each refused partition."""
        body = bodies.CommitOffsets(
            group=group,
            offsets=[
                group_bodies.OffsetToCommit(topic=one.topic, partition=one.partition, offset=offset)
                for one, offset in offsets.items()
            ],
            member_id=member_id,
            member_epoch=member_epoch,
        )
        return Request("POST", self._path("offsets"), _refused, body=body_of(body))

    def _path(self, verb: str) -> str:
        return path_of("transactions", self.transaction_id, verb)


def _transactions(data: bytes) -> list[Transaction]:
    return _read_transactions(data).transactions


def _refused(data: bytes) -> dict[TopicPartition, GoQueueError]:
    return {
        TopicPartition(one.topic, one.partition): error_of_problem(one.problem)
        for one in _read_committed(data).results
        if isinstance(one.problem, Problem)
    }
