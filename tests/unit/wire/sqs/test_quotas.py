"""Quotas on SQS: throttled as its clients expect, for each entry of a batch."""

from __future__ import annotations

from typing import Any

from goqueue.model.session import Session
from tests.integration.sqs import error_of
from tests.unit.wire.sqs.client import Node, queue

SESSION = Session("test")


def limit(node: Node, names: dict[str, str], **limits: float) -> None:
    node.world.wait(node.world.broker.gate.quotas.alter(SESSION, names=names, limits=limits))


def test_a_sender_over_its_rate_is_throttled(sqs: Any, node: Node) -> None:
    orders = queue(sqs)
    limit(node, {"user": ""}, producer_message_rate=1)
    sqs.send_message(QueueUrl=orders.url, MessageBody="one")
    sqs.send_message(QueueUrl=orders.url, MessageBody="two")
    code, status, _ = error_of(sqs.send_message, QueueUrl=orders.url, MessageBody="three")
    assert (code, status) == ("RequestThrottled", 403)
    node.world.run_for(1_000)
    sqs.send_message(QueueUrl=orders.url, MessageBody="three")


def test_a_throttled_batch_fails_entry_by_entry(sqs: Any, node: Node) -> None:
    orders = queue(sqs)
    limit(node, {"user": ""}, producer_message_rate=1)
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(3)]
    assert len(sqs.send_message_batch(QueueUrl=orders.url, Entries=entries)["Successful"]) == 3
    failed = sqs.send_message_batch(QueueUrl=orders.url, Entries=entries)["Failed"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in failed] == [
        (str(number), "RequestThrottled", True) for number in range(3)
    ]


def test_a_receiver_over_its_rate_is_throttled(sqs: Any, node: Node) -> None:
    orders = queue(sqs)
    for _ in range(4):
        sqs.send_message(QueueUrl=orders.url, MessageBody="x")
    limit(node, {"user": ""}, consumer_message_rate=1)
    assert sqs.receive_message(QueueUrl=orders.url, MaxNumberOfMessages=3)["Messages"]
    code, status, _ = error_of(sqs.receive_message, QueueUrl=orders.url)
    assert (code, status) == ("RequestThrottled", 403)


def test_too_many_messages_in_flight_are_over_the_limit(sqs: Any, node: Node) -> None:
    orders = queue(sqs)
    for _ in range(4):
        sqs.send_message(QueueUrl=orders.url, MessageBody="x")
    limit(node, {"tenant": ""}, in_flight_messages=2)
    received = sqs.receive_message(QueueUrl=orders.url, MaxNumberOfMessages=10)["Messages"]
    assert len(received) == 2
    code, status, _ = error_of(sqs.receive_message, QueueUrl=orders.url)
    assert (code, status) == ("OverLimit", 403)
    sqs.delete_message(QueueUrl=orders.url, ReceiptHandle=received[0]["ReceiptHandle"])
    assert sqs.receive_message(QueueUrl=orders.url)["Messages"]


def test_a_user_with_too_many_connections_is_over_the_limit(sqs: Any, node: Node) -> None:
    """Each request of this client has a connection of its own, which stays open."""
    limit(node, {"user": ""}, connections=3)
    for _ in range(3):
        sqs.list_queues()
    code, status, _ = error_of(sqs.list_queues)
    assert (code, status) == ("OverLimit", 403)


def test_queues_over_the_quota_of_topics_are_over_the_limit(sqs: Any, node: Node) -> None:
    queue(sqs, "one")
    limit(node, {"tenant": ""}, topics=1)
    code, status, _ = error_of(sqs.create_queue, QueueName="two")
    assert (code, status) == ("OverLimit", 403)
