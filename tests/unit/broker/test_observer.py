"""What an observer sees of one node: every range once, whatever way its messages took."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.delivery.redrive import RedriveOrder
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record, encode_batch
from goqueue.model.observer import Outcome
from tests.simulation.observing import CountingObserver
from tests.unit.broker.queues.test_queues import QueueNode
from tests.unit.wire.kafka.client import Client
from tests.unit.wire.kafka.requests import produce_request, records_for


@pytest.fixture
def seen() -> CountingObserver:
    return CountingObserver()


@pytest.fixture
def node(seen: CountingObserver) -> QueueNode:
    node = QueueNode(observer=seen)
    node.create("orders", 2)
    return node


def once(topic: str, offsets: Iterable[int], *, partition: int = 0) -> dict[object, int]:
    return {(topic, partition, offset): 1 for offset in offsets}


def of_group(topic: str, offsets: Iterable[int], times: int = 1) -> dict[object, int]:
    return {("shop", topic, 0, offset): times for offset in offsets}


@pytest.mark.parametrize("version", [2, 7, 9, 13])
def test_what_producers_send_is_stored_once(seen: CountingObserver, version: int) -> None:
    client = Client(observer=seen)
    for _ in range(3):
        request = produce_request(version, client.subject, records_for(version, b"a", b"b"))
        client.call("Produce", request, version)
    assert seen.stored_at == once("orders", range(6))
    assert seen.replicated_at == once("orders", range(6))
    assert seen.writers == {"kafka"}


def test_a_producer_that_repeats_a_batch_is_reported(seen: CountingObserver) -> None:
    client = Client(observer=seen)
    batch = bytes(
        encode_batch([Record(None, b"v")] * 3, producer_id=9, producer_epoch=0, base_sequence=0)
    )
    for _ in range(3):
        client.call("Produce", produce_request(9, client.subject, batch), 9)
    assert seen.stored_at == once("orders", range(3))
    assert seen.deduplicated_at == dict.fromkeys(once("orders", range(3)), 2)


def test_offsets_that_a_stream_group_commits_are_reported_once(
    node: QueueNode, seen: CountingObserver
) -> None:
    node.send(*"abcd")
    for offset in (1, 3, 3, 2, 4):
        to = OffsetToCommit(topic="orders", partition=0, offset=offset)
        commit = CommitOffsets(group_id="readers", offsets=[to])
        node.wait(node.broker.groups.commit_offsets(commit))
    assert seen.consumed_at == {
        ("readers", "orders", 0, offset): 1 + (offset == 2) for offset in range(4)
    }


def test_deleted_records_and_topics_are_retired(node: QueueNode, seen: CountingObserver) -> None:
    node.send(*"abcd")
    partition = node.broker.topics.get("orders").partition(0)
    partition.retention.delete_before(3)
    partition.retention.delete_before(3)
    assert seen.retired_at == once("orders", range(3))
    node.broker.topics.delete("orders")
    node.run_for(100)
    assert seen.retired_at == once("orders", range(4))


def test_a_letter_after_the_last_attempt_was_returned_before(
    node: QueueNode, seen: CountingObserver
) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"deliveries_max": 2}))
    node.send("a", "b")
    node.settle("nack", node.receive(messages_max=2), delay_ms=0)
    node.settle("nack", node.receive(messages_max=1), delay_ms=0)
    node.run_for(31_000)
    node.receive(messages_max=1)
    assert seen.settled_as[Outcome.NACKED] == of_group("orders", [0], 2) | of_group("orders", [1])
    assert seen.dead_lettered_at == of_group("orders", [0])


def test_what_is_published_is_stored_once(node: QueueNode, seen: CountingObserver) -> None:
    records = [Record(str(number).encode(), b"v") for number in range(20)]
    results = node.wait(node.broker.publish("orders", records))
    places = [("orders", one.partition, one.offset) for one in results if type(one) is Published]
    assert seen.stored_at == dict.fromkeys(places, 1)


def test_internal_topics_are_not_observed(node: QueueNode, seen: CountingObserver) -> None:
    node.send("a")
    node.settle("ack", node.receive())
    assert {topic for topic, _, _ in seen.stored_at} == {"orders"}


def test_a_message_is_delivered_retried_and_acknowledged(
    node: QueueNode, seen: CountingObserver
) -> None:
    node.send("a", "b", "c")
    messages = node.receive(messages_max=10)
    node.settle("ack", messages[:1])
    node.settle("nack", messages[1:2], delay_ms=0)
    [again] = node.receive(messages_max=10)
    node.settle("ack", [again])
    node.run_for(31_000)  # The lease of the third expires.
    [third] = node.receive(messages_max=10)
    node.settle("ack", [third])
    assert seen.delivered_at == of_group("orders", [0]) | of_group("orders", [1, 2], 2)
    assert seen.settled_as[Outcome.NACKED] == of_group("orders", [1])
    assert seen.settled_as[Outcome.LEASE_EXPIRED] == of_group("orders", [2])
    assert [seen.attempts["shop", "orders", 0, offset] for offset in range(3)] == [
        [1],
        [1, 2],
        [1, 2],
    ]
    assert seen.settled_as[Outcome.ACKED] == of_group("orders", [0, 1, 2])
    assert not seen.dead_lettered_at


def test_messages_that_are_returned_together_are_all_reported(
    node: QueueNode, seen: CountingObserver
) -> None:
    node.send("a", "b", "c", "d")
    messages = node.receive(messages_max=10)
    node.settle("nack", [messages[2], messages[0], messages[1]], delay_ms=60_000)
    assert seen.settled_as[Outcome.NACKED] == of_group("orders", [0, 1, 2])


def test_a_rejected_message_is_dead_lettered_and_redriven(
    node: QueueNode, seen: CountingObserver
) -> None:
    node.send("a", "b")
    first, second = node.receive(messages_max=2)
    node.settle("reject", [first], reason="no")
    node.settle("ack", [second])
    assert seen.dead_lettered_at == of_group("orders", [0])
    assert seen.settled_as[Outcome.REJECTED] == of_group("orders", [0])
    assert seen.settled_as[Outcome.ACKED] == of_group("orders", [1])
    assert seen.stored_at == once("orders", [0, 1]) | once("orders.dlq", [0])
    node.wait(node.broker.redrives.start("orders", RedriveOrder()))
    node.run_for(5_000)
    assert seen.redriven_at == once("orders.dlq", [0])
    assert seen.targets == {
        ("orders", 0, 0): ("orders.dlq", 0, 0),
        ("orders.dlq", 0, 0): ("orders", 0, 2),
    }
    assert seen.stored_at == once("orders", [0, 1, 2]) | once("orders.dlq", [0])


def test_a_delayed_message_is_scheduled_and_released_or_cancelled(
    node: QueueNode, seen: CountingObserver
) -> None:
    delayed = Record(None, b"v", ((DELAY_HEADER, b"5000"),))
    results = [node.wait(node.broker.publish("orders", [delayed])) for _ in range(3)]
    [kept, cancelled, other] = [one for [one] in results if type(one) is Scheduled]
    assert kept != other
    node.wait(node.broker.schedules.cancel(cancelled.schedule_id))
    assert len(seen.scheduled_at) == 3
    assert set(seen.scheduled_at.values()) == {1}
    assert len(seen.cancelled_at) == 1
    assert not seen.stored_at
    node.run_for(6_000)
    assert len(seen.released_at) == 2
    assert seen.released_at + seen.cancelled_at == seen.scheduled_at
    assert len(seen.stored_at) == 2
    assert set(seen.targets) == set(seen.released_at)
    assert set(seen.targets.values()) == set(seen.stored_at)


def test_what_a_receiver_that_is_gone_was_given_is_released(
    node: QueueNode, seen: CountingObserver
) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"key_order": True}))
    node.send("a", key=b"k")
    node.ask(messages_max=1).cancel()
    node.run_for(100)
    [message] = node.receive(messages_max=1)
    assert message.delivery.attempt == 1
    released = seen.settled_as[Outcome.RELEASED]
    assert seen.delivered_at - released == of_group("orders", [0])
