"""Transactions for operators: list and describe them, find those that block readers, abort one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from goqueue.client.cluster import TRANSACTION_KEY, Cluster
from goqueue.client.errors import BrokerRefused, ErrorContext, check
from goqueue.model.errors import InvalidTransactionState
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import (
    describe_producers,
    describe_transactions,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)

OPEN = ("Ongoing", "Prepared")
PREPARING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_TIMEOUT_MS_MAX = 60_000
_NO_FILTER_MS = -1
_NO_START = -1


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    transactional_id: str
    producer_id: int
    state: str
    node_id: int  # its coordinator


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id; `started_ms` is None before its first transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in one partition; readers of committed records stop there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_write_ms: int


class Transactions:
    """Looks at transactions and aborts them.

    >>> [(each.transactional_id, each.state) for each in client.transactions.list_all()]
    [('billing-0', 'Ongoing')]
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_all(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        older_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionSummary]:
        """The transactional ids of all brokers, by name; all given filters apply."""
        request = list_transactions.ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=_NO_FILTER_MS if older_than_ms is None else older_than_ms,
            transactional_id_pattern=pattern,
        )

        def attempt() -> list[TransactionSummary]:
            nodes = self._cluster.nodes()
            responses = self._cluster.call_leaders(list_transactions, dict.fromkeys(nodes, request))
            found = []
            for node, response in zip(nodes, responses, strict=True):
                check(response.error_code)
                found += [
                    TransactionSummary(
                        each.transactional_id, each.producer_id, each.transaction_state, node.id
                    )
                    for each in response.transaction_states
                ]
            return sorted(found, key=lambda each: each.transactional_id)

        return self._cluster.retrying(attempt)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """One transactional id, with the partitions of its open transaction."""
        request = describe_transactions.DescribeTransactionsRequest([transactional_id])

        def attempt() -> TransactionDescription:
            response = self._cluster.call_coordinator(
                transactional_id, describe_transactions, request, key_type=TRANSACTION_KEY
            )
            (found,) = response.transaction_states
            check(found.error_code, None, ErrorContext(transaction=transactional_id))
            return _description(found)

        return self._cluster.retrying(attempt)

    def abort(self, transactional_id: str) -> TransactionDescription:
        """Abort the open transaction and fence its producer; return what was aborted.

        The id is initialised again, as a new producer with that id would do.
        """
        found = self.describe(transactional_id)
        if found.state in PREPARING:
            raise InvalidTransactionState(
                f"Transaction {transactional_id} is being completed already ({found.state}); "
                "wait for it."
            )
        if found.state not in OPEN:
            raise InvalidTransactionState(
                f"{transactional_id} has no open transaction (it is {found.state})."
            )
        request = init_producer_id.InitProducerIdRequest(
            # A prepared transaction may wait longer than a producer's timeout allows.
            transactional_id,
            transaction_timeout_ms=min(found.timeout_ms, _TIMEOUT_MS_MAX),
        )

        def attempt() -> None:
            response = self._cluster.call_coordinator(
                transactional_id, init_producer_id, request, key_type=TRANSACTION_KEY
            )
            # While the abort is in progress the response is "concurrent transactions": retry.
            check(response.error_code, None, ErrorContext(transaction=transactional_id))

        self._cluster.retrying(attempt)
        return found

    def open_in(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """The transactions that are open in some partitions, as reported by those partitions."""
        wanted = list(partitions)

        def attempt() -> list[OpenTransaction]:
            requests = {
                node: describe_producers.DescribeProducersRequest(
                    [describe_producers.TopicRequest(name, each) for name, each in topics.items()]
                )
                for node, topics in self._cluster.by_leader(wanted).items()
            }
            responses = self._cluster.call_leaders(describe_producers, requests)
            return [each for response in responses for each in _open_transactions(response)]

        return self._cluster.retrying(attempt)

    def hanging(self, *, idle_ms_min: int, now_ms: int) -> list[OpenTransaction]:
        """Return transactions open in a partition that no coordinator will ever end.

        One that has just begun may not be known to its coordinator yet, so only those are checked
        whose last record is at least `idle_ms_min` old.
        """
        partitions = [
            partition
            for topic in self._cluster.retrying(self._cluster.topics)
            for partition in topic.names
        ]
        old = [
            each for each in self.open_in(partitions) if each.last_write_ms <= now_ms - idle_ms_min
        ]
        if not old:
            return []
        owners = self.list_all(producer_ids={each.producer_id for each in old})
        kept = {
            (found.producer_id, partition)
            for found in (self.describe(each.transactional_id) for each in owners)
            for partition in found.partitions
        }
        return [each for each in old if (each.producer_id, each.partition) not in kept]

    def abort_in(self, transaction: OpenTransaction) -> None:
        """Write the marker that ends a hanging transaction in its partition."""
        partition = transaction.partition
        request = write_txn_markers.WriteTxnMarkersRequest(
            [
                write_txn_markers.WritableTxnMarker(
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    transaction_result=False,
                    topics=[
                        write_txn_markers.WritableTxnMarkerTopic(
                            partition.topic, [partition.partition]
                        )
                    ],
                    coordinator_epoch=max(0, transaction.coordinator_epoch),
                )
            ]
        )

        def attempt() -> None:
            leader = self._cluster.leader_of(partition)
            (response,) = self._cluster.call_leaders(write_txn_markers, {leader: request})
            results = [each for marker in response.markers for each in marker.topics]
            if not results:
                raise BrokerRefused(f"The response does not contain the outcome of {partition}.")
            for topic in results:
                for each in topic.partitions:
                    check(each.error_code, None, ErrorContext(topic.name, each.partition_index))

        self._cluster.retrying(attempt)


def _description(found: describe_transactions.TransactionState) -> TransactionDescription:
    return TransactionDescription(
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
        tuple(
            sorted(
                TopicPartition(topic.topic, index)
                for topic in found.topics
                for index in topic.partitions
            )
        ),
    )


def _open_transactions(
    response: describe_producers.DescribeProducersResponse,
) -> list[OpenTransaction]:
    found = []
    for topic in response.topics:
        for partition in topic.partitions:
            about = ErrorContext(topic.name, partition.partition_index)
            check(partition.error_code, partition.error_message, about)
            found += [
                OpenTransaction(
                    TopicPartition(topic.name, partition.partition_index),
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                    each.last_timestamp,
                )
                for each in partition.active_producers
                if each.current_txn_start_offset != _NO_START
            ]
    return found
