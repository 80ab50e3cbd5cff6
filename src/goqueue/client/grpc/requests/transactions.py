"""Transactions: begin, publish, acknowledge, commit offsets, end and describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from goqueue.client.grpc.failures import error_of
from goqueue.client.grpc.messages import joined, outcomes_of, outgoing, receipt_outcomes
from goqueue.client.grpc.request import NotInGrpc, call, nothing
from goqueue.client.http.messages import Outgoing
from goqueue.client.http.moments import Duration, duration_ms
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.requests import transactions as http
from goqueue.client.http.requests.messages import Outcome
from goqueue.client.http.requests.queues import Outcomes
from goqueue.client.http.requests.transactions import TIMEOUT_SECONDS
from goqueue.model.errors import GoQueueError
from goqueue.model.names import TopicPartition
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import offset_service_pb2 as offsets_wire
from goqueue.wire.grpc.messages import transaction_service_pb2 as wire
from goqueue.wire.http.bodies.transactions import (
    Begun,
    Participant,
    Transaction,
    TransactionShown,
    TransactionState,
)

_SERVICE = "TransactionService"


class TransactionRequests(http.TransactionRequests):
    def begin(
        self, transactional_id: str | None = None, *, timeout: Duration = TIMEOUT_SECONDS
    ) -> Request[Begun]:
        request = wire.BeginTransactionRequest(
            transactional_id=transactional_id or "", timeout_ms=duration_ms(timeout)
        )
        return call(f"{_SERVICE}/BeginTransaction", request, wire.BeginTransactionResponse, _begun)

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
        if producer_id is not None or older_than is not None or after:
            raise NotInGrpc("Listing transactions by producer, age or page")
        request = wire.ListTransactionsRequest(page_size=limit, prefix=prefix, state=state or "")
        return call(
            f"{_SERVICE}/ListTransactions",
            request,
            wire.ListTransactionsResponse,
            lambda response: [Transaction(**_fields(one)) for one in response.transactions],
        )

    def describe(self, transaction_id: str) -> Request[TransactionShown]:
        return call(
            f"{_SERVICE}/GetTransaction",
            wire.GetTransactionRequest(transaction_id=transaction_id),
            wire.GetTransactionResponse,
            lambda response: TransactionShown(
                **_fields(response.transaction), superseded=response.superseded
            ),
        )

    def commit(self, transaction_id: str) -> Request[None]:
        return call(
            f"{_SERVICE}/CommitTransaction",
            wire.CommitTransactionRequest(transaction_id=transaction_id),
            wire.CommitTransactionResponse,
            nothing,
        )

    def abort(self, transaction_id: str) -> Request[None]:
        return call(
            f"{_SERVICE}/AbortTransaction",
            wire.AbortTransactionRequest(transaction_id=transaction_id),
            wire.AbortTransactionResponse,
            nothing,
        )

    def inside(self, transaction_id: str) -> InTransaction:
        return InTransaction(transaction_id)


@dataclass(frozen=True, slots=True)
class InTransaction(http.InTransaction):
    def encoded(self, topic: str, message: Outgoing) -> bytes:
        return wire.TopicMessage(topic=topic, message=outgoing(message)).SerializeToString()

    def publish(self, parts: Sequence[bytes]) -> Request[list[Outcome]]:
        head = wire.PublishInTransactionRequest(transaction_id=self.transaction_id)

        def read(response: wire.PublishInTransactionResponse) -> list[Outcome]:
            topics = [wire.TopicMessage.FromString(part).topic for part in parts]
            return outcomes_of(topics, response.report)

        made = call(
            f"{_SERVICE}/PublishInTransaction",
            head,
            wire.PublishInTransactionResponse,
            read,
            repeat=Repeat.AMBIGUOUS,
        )
        return Request(
            made.method, made.path, made.read, body=joined(head, parts), repeat=made.repeat
        )

    def ack(self, group: str, receipts: Sequence[str]) -> Request[Outcomes]:
        request = wire.AckInTransactionRequest(
            transaction_id=self.transaction_id, group=group, receipts=receipts
        )
        return call(
            f"{_SERVICE}/AckInTransaction",
            request,
            wire.AckInTransactionResponse,
            lambda response: receipt_outcomes(receipts, response.errors),
            repeat=Repeat.AMBIGUOUS,
        )

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        member_id: str | None = None,
        member_epoch: int | None = None,
    ) -> Request[dict[TopicPartition, GoQueueError]]:
        request = wire.CommitOffsetsInTransactionRequest(
            transaction_id=self.transaction_id,
            group=group,
            offsets=offsets_to_commit(offsets),
            member_id=member_id or "",
            member_epoch=member_epoch or 0,
        )
        return call(
            f"{_SERVICE}/CommitOffsetsInTransaction",
            request,
            wire.CommitOffsetsInTransactionResponse,
            lambda response: refused_offsets(response.errors),
        )


def offsets_to_commit(
    offsets: Mapping[TopicPartition, int],
) -> list[offsets_wire.OffsetToCommit]:
    return [
        offsets_wire.OffsetToCommit(topic=one.topic, partition=one.partition, offset=offset)
        for one, offset in offsets.items()
    ]


def refused_offsets(
    errors: Iterable[offsets_wire.OffsetError],
) -> dict[TopicPartition, GoQueueError]:
    return {TopicPartition(one.topic, one.partition): error_of(one.error) for one in errors}


def _begun(response: wire.BeginTransactionResponse) -> Begun:
    return Begun(
        id=response.transaction_id,
        transactional_id=response.transactional_id,
        producer_id=-1,  # in the HTTP API only, as is the epoch
        producer_epoch=-1,
        timeout_ms=response.timeout_ms,
    )


def _fields(one: wire.Transaction) -> dict[str, Any]:
    return {
        "id": one.transaction_id,
        "transactional_id": one.transactional_id,
        "state": cast(TransactionState, one.state),
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started_at": one.started_at_ms if one.HasField("started_at_ms") else None,
        "updated_at": one.updated_at_ms,
        "participants": [_participant(each) for each in one.participants],
    }


def _participant(one: shared.TopicPartition) -> Participant:
    return Participant(topic=one.topic, partition=one.partition)
