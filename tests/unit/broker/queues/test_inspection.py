"""A look at a queue reads and keeps a bounded part of it, a bounded part in one turn."""

from __future__ import annotations

import pytest

from goqueue.broker.queues import inspection
from goqueue.broker.queues.inspection import PEEK_BYTES_MAX
from goqueue.delivery import backlog
from tests.unit.broker.queues.test_queues import QueueNode

MiB = 1 << 20


@pytest.fixture
def node() -> QueueNode:
    node = QueueNode()
    node.create("orders", 2, max_message_bytes=str(16 * MiB))
    node.receive()
    return node


def peeked(node: QueueNode, *where: int, offset: int | None = None, count: int = 100) -> list[int]:
    found = node.wait(
        node.broker.queues.inspection.peek("shop", "orders", *where, offset=offset, count=count)
    )
    return [one.state.offset for one in found]


def test_the_batches_of_a_peek_are_bounded_and_the_next_goes_on(node: QueueNode) -> None:
    for partition in (0, 1):
        for _ in range(10):
            node.send("x" * MiB, partition=partition)
    fitting = PEEK_BYTES_MAX // MiB - 1
    assert peeked(node) == list(range(fitting))
    assert peeked(node, 0, offset=5) == list(range(5, 5 + fitting))
    assert peeked(node, 1, offset=9) == [9]


def test_a_batch_that_is_larger_than_the_bound_comes_alone(node: QueueNode) -> None:
    for _ in range(3):
        node.send("x" * (2 * PEEK_BYTES_MAX))
    assert peeked(node) == [0]
    assert peeked(node, 0, offset=1) == [1]


def test_what_is_done_is_not_read(node: QueueNode) -> None:
    for number in range(6):
        node.send(f"{number}" * (PEEK_BYTES_MAX // 3))
    messages = [one for _ in range(6) for one in node.receive(messages_max=1)]
    node.settle("ack", messages[1:5])
    assert peeked(node) == [0, 5]


def test_the_search_is_bounded_in_a_turn_and_in_all(
    node: QueueNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "PEEK_STRETCH", 2)
    monkeypatch.setattr(inspection, "PEEK_STRETCHES_TOTAL_MAX", 3)
    states = inspection.peek
    turns: list[int] = []

    def count(queue: object, number: int, offsets: object) -> object:
        turns.append(node.clock.steps)
        return states(queue, number, offsets)  # type: ignore[arg-type]

    monkeypatch.setattr(inspection, "peek", count)
    node.send(*(f"{number}" for number in range(10)))
    # Each stretch is looked at twice: for what is to be read, and for what becomes of it.
    assert peeked(node) == list(range(6))
    assert len(turns) == 2 * 3
    assert len(set(turns)) == 3


@pytest.mark.parametrize("state", ["ready", "in flight", "retrying", "parked"])
def test_the_backlog_is_as_old_as_its_oldest_message_in_any_state(
    node: QueueNode, state: str
) -> None:
    is_ordered = state == "parked"
    settings = {"key_order": is_ordered, "deliveries_max": 9, "backoff_ms": 0}
    node.wait(node.broker.queues.groups.create("shop", settings))
    node.receive()  # The queue is open: messages have the time of their arrival.
    node.send("done", key=b"a")
    node.settle("ack", node.receive())
    node.run_for(10_000)
    node.send("old", key=b"a")
    node.run_for(5_000)
    if state in ("in flight", "retrying"):
        held = node.receive(visibility_ms=600_000)
        assert len(held) == 1
        if state == "retrying":
            node.settle("nack", held, delay_ms=600_000)
    elif state == "parked":
        held = node.receive(visibility_ms=600_000)
        node.send("behind", key=b"a")
        assert node.receive() == []
    node.run_for(20_000)
    [hosted] = [one for one in node.broker.queues.groups.hosted_here() if one.group == "shop"]
    left = backlog(hosted.queue.partitions[0], node.broker.clock.monotonic_ms())
    assert left.messages == (2 if state == "parked" else 1)
    assert 25_000 <= left.oldest_age_ms < 27_000
    empty = backlog(hosted.queue.partitions[1], node.broker.clock.monotonic_ms())
    assert (empty.messages, empty.oldest_age_ms) == (0, 0)
