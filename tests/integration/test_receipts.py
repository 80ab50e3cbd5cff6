"""Receipts outlive the node that gave them: restarts, kill -9, and a change of owner.

Messages are received before it, and settled afterwards with the same receipts, over SQS, over HTTP
and in a transaction. What was out stays out until its time, and receive counts go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from goqueue.client.http import Client, Outgoing, ReceivedMessage
from goqueue.model.errors import GoQueueError

from .cluster import Cluster
from .conftest import StartBroker
from .process import Broker
from .sqs import ATTEMPTS_AFTER_CRASH, Answer, Queue, connect, error_of
from .waiting import eventually

LONG = 120  # seconds; longer than a test lasts
SOON = 8
GROUP = "workers"
TOPIC = "work"

pytestmark = pytest.mark.timeout(240)


class Held:
    """What consumers of all kinds hold at one node."""

    def __init__(self, node: Broker) -> None:
        self.node = node
        client = self._connect()
        standard = client.create_queue(QueueName="plain")["QueueUrl"]
        ordered = client.create_queue(
            QueueName="ordered.fifo",
            Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
        )["QueueUrl"]
        self.names = {"plain": standard, "ordered.fifo": ordered}
        self.messages: dict[str, list[Answer]] = {}
        for name in self.names:
            queue = self.queue(name)
            for body in "abcde":
                more = {"MessageGroupId": body} if name.endswith("fifo") else {}
                queue.send(body, **more)
            found = queue.receive_all(4, VisibilityTimeout=LONG)
            found += queue.receive_all(1, VisibilityTimeout=SOON)
            self.messages[name] = sorted(found, key=lambda one: str(one["Body"]))
        self.soon = time.monotonic() + SOON
        self.http: list[ReceivedMessage] = []

    def hold_over_http(self) -> None:
        with Client(self.node.http) as client:
            client.topics.create(TOPIC, partitions=1)
            client.publish_many(TOPIC, [Outgoing(body, key=body) for body in "abcde"])
            queue = client.queue(TOPIC, group=GROUP)

            def receive() -> bool:
                self.http += queue.receive(5, wait=5, visibility=LONG)
                return len(self.http) == 5

            eventually(receive, because="all are received")

    def _connect(self) -> Any:
        return connect(self.node.sqs, attempts_max=ATTEMPTS_AFTER_CRASH)

    def queue(self, name: str) -> Queue:
        client = self._connect()
        url = eventually(
            lambda: client.get_queue_url(QueueName=name)["QueueUrl"], because="the queue is there"
        )
        return Queue(client, url)


def check_sqs(held: Held, name: str, *, is_soon_over: bool) -> None:
    """Everything that a receipt is for, at the node that answers now."""
    queue = held.queue(name)
    first, second, third, fourth, soon = held.messages[name]
    if not is_soon_over:
        assert queue.receive() == [], "what is out was delivered again"
    queue.delete(first)
    queue.delete(first)  # The answer might have been lost.
    queue.hide(second, 0)
    queue.hide(third, LONG)
    # One was given back, and the time of the other is over before long.
    found = queue.receive_all(2, AttributeNames=["ApproximateReceiveCount"], VisibilityTimeout=LONG)
    again, late = sorted(found, key=lambda one: str(one["Body"]))
    counts = [one["Attributes"]["ApproximateReceiveCount"] for one in (again, late)]
    assert ([again["Body"], late["Body"]], counts) == (["b", "e"], ["2", "2"])
    queue.delete(again)
    queue.delete(fourth)
    forged = third["ReceiptHandle"]
    forged = forged[:20] + ("A" if forged[20] != "A" else "B") + forged[21:]
    code, _, _ = error_of(queue.client.delete_message, QueueUrl=queue.url, ReceiptHandle=forged)
    assert code == "ReceiptHandleIsInvalid"
    if name.endswith(".fifo"):
        code, _, _ = error_of(
            queue.client.delete_message,
            QueueUrl=queue.url,
            ReceiptHandle=soon["ReceiptHandle"],
        )
        assert code == "InvalidParameterValue", "somebody else has the message"
        queue.delete(late)
    else:
        queue.delete(soon)  # Any receipt of the message deletes it.
    assert queue.receive() == []
    queue.delete(third)
    eventually(lambda: queue.counts()[1] <= 1, because="nothing else is in flight")


def check_http(held: Held) -> None:
    """The same over HTTP, by the Python client, and in a transaction."""
    with Client(held.node.http) as client:
        acked, nacked, rejected, extended, in_transaction = held.http
        queue = client.queue(TOPIC, group=GROUP)
        eventually(lambda: _is_done(partial(queue.ack, acked)), because="the group has an owner")
        queue.ack(acked)  # The answer might have been lost.
        for _ in range(2):
            queue.reject(rejected)
        queue.extend(extended, visibility=LONG)
        with client.transaction("settler") as transaction:
            transaction.ack(in_transaction)
        for _ in range(2):
            queue.nack(nacked, delay=0)
        [again] = queue.receive(5, wait=10)
        assert (again.text, again.attempt) == ("b", 2)
        queue.ack(again)
        queue.ack(extended)
        assert queue.receive(5) == []
        totals = queue.stats()
        assert (totals.ready, totals.in_flight) == (0, 0)


def _is_done(call: Callable[[], None]) -> bool:
    """Whether a call is answered; a node that has no owner to ask yet says so."""
    try:
        call()
    except GoQueueError as error:
        if not error.retryable:
            raise
        return False
    return True


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_receipts_are_good_after_a_restart_of_a_node(start_broker: StartBroker, how: str) -> None:
    node = start_broker()
    held = Held(node)
    held.hold_over_http()

    getattr(node, how)()
    node.start()
    check_http(held)
    for name in held.names:
        check_sqs(held, name, is_soon_over=time.monotonic() > held.soon)


def test_receipts_are_good_at_the_next_owner(tmp_path: Path) -> None:
    # With one partition of delivery state its leader owns every group.
    cluster = Cluster(tmp_path, settings={"delivery.partitions": 1})
    try:
        cluster.start()
        cluster.until_in_sync("__delivery")  # A node serves before all of them know of it.
        owner = cluster.nodes[cluster.leader_of("__delivery")]
        held = Held(owner)
        held.hold_over_http()
        for name in held.names:
            cluster.until_in_sync(name)
        cluster.until_in_sync("__delivery")
        owner.kill()
        held.node = next(one for one in cluster.nodes.values() if one is not owner)
        check_http(held)
        for name in held.names:
            check_sqs(held, name, is_soon_over=time.monotonic() > held.soon)
    finally:
        cluster.close()
