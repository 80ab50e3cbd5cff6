"""Finding transactions that nobody will end, and ending them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from goqueue.client.cluster import Node, PartitionView, TopicView
from goqueue.client.transactions import OpenTransaction, Transactions
from goqueue.model.errors import InvalidTransactionState, UnknownTransaction
from goqueue.model.names import TopicPartition
from goqueue.wire.kafka.messages import (
    describe_producers,
    describe_transactions,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)

NODE = Node(1, "here", 9092)
PLACE = TopicPartition("orders", 0)
NOW_MS = 1_000_000


class FakeCluster:
    """One broker, which knows transactions by id and what is open in `orders/0`."""

    def __init__(self) -> None:
        self.known: dict[str, describe_transactions.TransactionState] = {}
        self.producers: list[describe_producers.ProducerState] = []
        self.asked: list[Any] = []

    def retrying(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    def nodes(self) -> list[Node]:
        return [NODE]

    def topics(self) -> list[TopicView]:
        return [TopicView("orders", bytes(16), False, (PartitionView(0, 1, 0, (1,), (1,)),))]

    def leader_of(self, partition: TopicPartition) -> Node:
        return NODE

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Node, dict[str, list[int]]]:
        return {NODE: {each.topic: [each.partition] for each in partitions}}

    def call_leaders(self, codec: Any, requests: Mapping[Node, Any]) -> list[Any]:
        return [self._answer(codec, request) for request in requests.values()]

    def call_coordinator(self, name: str, codec: Any, request: Any, *, key_type: int) -> Any:
        assert key_type == 1
        return self._answer(codec, request)

    def _answer(self, codec: Any, request: Any) -> Any:
        self.asked.append(request)
        if codec is describe_producers:
            partition = describe_producers.PartitionResponse(0, active_producers=self.producers)
            topic = describe_producers.TopicResponse("orders", [partition])
            return describe_producers.DescribeProducersResponse(topics=[topic])
        if codec is list_transactions:
            return list_transactions.ListTransactionsResponse(
                transaction_states=[
                    list_transactions.TransactionState(name, one.producer_id, one.transaction_state)
                    for name, one in self.known.items()
                    if one.producer_id in request.producer_id_filters
                ]
            )
        if codec is describe_transactions:
            (name,) = request.transactional_ids
            missing = describe_transactions.TransactionState(error_code=105)
            found = self.known.get(name, missing)
            return describe_transactions.DescribeTransactionsResponse(transaction_states=[found])
        if codec is write_txn_markers:
            result = write_txn_markers.WritableTxnMarkerPartitionResult(0)
            topic = write_txn_markers.WritableTxnMarkerTopicResult("orders", [result])
            return write_txn_markers.WriteTxnMarkersResponse(
                [write_txn_markers.WritableTxnMarkerResult(7, [topic])]
            )
        assert codec is init_producer_id
        return init_producer_id.InitProducerIdResponse(producer_id=7, producer_epoch=4)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def transaction(state: str, *partitions: int) -> describe_transactions.TransactionState:
    topics = [describe_transactions.TopicData("orders", list(partitions))] if partitions else []
    return describe_transactions.TransactionState(
        transactional_id="till",
        transaction_state=state,
        transaction_timeout_ms=5_000,
        transaction_start_time_ms=-1,
        producer_id=7,
        producer_epoch=3,
        topics=topics,
    )


def writing(*, last_ms: int, start_offset: int = 40) -> describe_producers.ProducerState:
    return describe_producers.ProducerState(
        producer_id=7,
        producer_epoch=3,
        last_timestamp=last_ms,
        coordinator_epoch=-1,
        current_txn_start_offset=start_offset,
    )


def hanging(cluster: FakeCluster) -> list[OpenTransaction]:
    transactions = Transactions(cluster)  # type: ignore[arg-type]
    return transactions.hanging(idle_ms_min=1_000, now_ms=NOW_MS)


def test_a_transaction_hangs_when_no_coordinator_counts_its_partition(cluster: FakeCluster) -> None:
    cluster.producers = [writing(last_ms=NOW_MS - 1_000)]
    expected = [OpenTransaction(PLACE, 7, 3, -1, 40, NOW_MS - 1_000)]
    assert hanging(cluster) == expected
    cluster.known["till"] = transaction("Ongoing", 1, 2)
    assert hanging(cluster) == expected
    cluster.known["till"] = transaction("Ongoing", 0)
    assert hanging(cluster) == []


def test_what_was_written_a_moment_ago_does_not_hang(cluster: FakeCluster) -> None:
    cluster.producers = [writing(last_ms=NOW_MS - 999)]
    assert hanging(cluster) == []
    cluster.producers = [writing(last_ms=0, start_offset=-1)]
    assert hanging(cluster) == []


def test_a_hanging_transaction_is_ended_where_it_is_open(cluster: FakeCluster) -> None:
    cluster.producers = [writing(last_ms=0)]
    (found,) = hanging(cluster)
    Transactions(cluster).abort_in(found)  # type: ignore[arg-type]
    (marker,) = cluster.asked[-1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, False)
    # A producer that has ended no transaction yet has met no coordinator.
    assert marker.coordinator_epoch == 0
    (topic,) = marker.topics
    assert (topic.name, topic.partition_indexes) == ("orders", [0])


def test_an_open_transaction_is_aborted_by_taking_its_id_over(cluster: FakeCluster) -> None:
    transactions = Transactions(cluster)  # type: ignore[arg-type]
    cluster.known["till"] = transaction("Ongoing", 0)
    assert transactions.abort("till").partitions == (PLACE,)
    asked = cluster.asked[-1]
    assert (asked.transactional_id, asked.transaction_timeout_ms) == ("till", 5_000)
    assert (asked.producer_id, asked.producer_epoch) == (-1, -1)


def test_a_prepared_transaction_is_aborted_too_however_long_it_might_wait(
    cluster: FakeCluster,
) -> None:
    cluster.known["till"] = transaction("Prepared", 0)
    cluster.known["till"].transaction_timeout_ms = 86_400_000
    Transactions(cluster).abort("till")  # type: ignore[arg-type]
    assert cluster.asked[-1].transaction_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("state", "words"), [("Empty", "no open transaction"), ("PrepareCommit", "being completed")]
)
def test_what_is_not_open_is_left_alone(cluster: FakeCluster, state: str, words: str) -> None:
    transactions = Transactions(cluster)  # type: ignore[arg-type]
    cluster.known["till"] = transaction(state)
    with pytest.raises(InvalidTransactionState, match=words):
        transactions.abort("till")
    with pytest.raises(UnknownTransaction, match="no transactional id 'other'"):
        transactions.abort("other")
    assert not any(isinstance(each, init_producer_id.Request) for each in cluster.asked)
