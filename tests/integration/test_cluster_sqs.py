"""SQS over three real nodes: what is sent to one of them is received from another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster
from .sqs import Queue, connect

QUEUES = 9

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """A client of each node."""
    cluster = Cluster(Path(tmp_path_factory.mktemp("sqs")))
    try:
        cluster.start()
        yield [connect(node.sqs, attempts_max=5) for node in cluster.nodes.values()]
    finally:
        cluster.close()


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_the_first_short_poll_after_a_send_finds_the_message(
    clients: list[Any], suffix: str
) -> None:
    attributes = {"FifoQueue": "true"} if suffix else {}
    empty = []
    for number in range(QUEUES):
        sender, receiver = clients[number % 3], clients[(number + 1) % 3]
        name = f"new-{number}{suffix}"
        url = sender.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        ordered = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if suffix else {}
        Queue(sender, url).send("first", **ordered)
        if not Queue(receiver, url).receive(1):
            empty.append(name)
    assert empty == []


def test_a_purge_lets_deduplication_ids_be_used_again_at_every_node(clients: list[Any]) -> None:
    attributes = {"FifoQueue": "true"}
    url = clients[0].create_queue(QueueName="purged.fifo", Attributes=attributes)["QueueUrl"]
    same = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    Queue(clients[0], url).send("one", **same)
    clients[1].purge_queue(QueueUrl=url)
    Queue(clients[2], url).send("two", **same)
    [message] = Queue(clients[0], url).receive_all(1)
    assert message["Body"] == "two"
