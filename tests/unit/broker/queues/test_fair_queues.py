"""Fair shares on a node: what a receive reads to find others behind a backlog is bounded."""

from __future__ import annotations

import pytest

from goqueue.broker.queues import queues as receiving
from tests.unit.broker.queues.test_queues import QueueNode

BATCH = 50
FAIR = {"fair_keys": True, "backoff_ms": 0, "deliveries_max": 0}


@pytest.fixture
def node() -> QueueNode:
    node = QueueNode()
    node.create("orders")
    node.wait(node.broker.queues.groups.create("shop", FAIR))
    return node


def backlog(node: QueueNode, count: int, *, size: int = 10) -> None:
    for _ in range(count // BATCH):
        node.send(*["n" * size] * BATCH, key=b"noisy")


def quiet_in(node: QueueNode, receives: int, **options: object) -> int:
    """How many messages of the quiet tenant come in so many receives, all of which get some."""
    found = 0
    for _ in range(receives):
        texts = node.texts(**options)  # type: ignore[arg-type]
        assert texts
        found += sum(text.startswith("quiet") for text in texts)
    return found


def test_a_quiet_tenant_is_found_behind_a_backlog(node: QueueNode) -> None:
    backlog(node, 1000)
    node.send(*[f"quiet {number}" for number in range(10)], key=b"quiet")
    assert quiet_in(node, 7, messages_max=10) == 10


def test_large_messages_are_looked_at_a_few_at_a_time(
    node: QueueNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every receive is answered though one look covers no more than a few of them."""
    monkeypatch.setattr(receiving, "LOOK_BYTES_MAX", 20_000)
    backlog(node, 300, size=4000)
    node.send("quiet", key=b"quiet")
    assert quiet_in(node, 29, messages_max=10) == 1
    left = node.texts(messages_max=100)
    assert len(left) == 301 - 290


def test_an_answer_stays_within_its_bytes_whatever_was_looked_at() -> None:
    node = QueueNode(delivery__receive_bytes_max="30KiB")
    node.create("orders")
    node.wait(node.broker.queues.groups.create("shop", FAIR))
    backlog(node, 200, size=3000)
    for _ in range(12):
        received = node.receive(messages_max=20)
        assert 1 <= len(received) <= 10
        assert sum(len(one.record.value or b"") for one in received) <= 30 << 10


def test_everything_comes_once_and_all_of_it(node: QueueNode) -> None:
    for number in range(40):
        node.send(
            *[f"{number}.{n}" for n in range(10)], key=b"a" if number % 4 else b"b%d" % number
        )
    node.send(*[f"none.{n}" for n in range(10)])
    texts: list[str] = []
    while some := node.receive(messages_max=7):
        texts += [(one.record.value or b"").decode() for one in some]
        if len(texts) % 3:
            node.settle("ack", some)
    assert len(texts) == len(set(texts)) == 410


def test_messages_with_a_life_end_also_when_they_are_set_aside(node: QueueNode) -> None:
    for _ in range(4):
        node.send(*["n"] * BATCH, key=b"noisy", headers=(("goqueue-ttl-ms", b"5000"),))
    assert len(node.receive(messages_max=40, visibility_ms=60_000)) == 40
    assert len(node.receive(messages_max=1, visibility_ms=60_000)) == 1
    stats = node.broker.queues.inspection.stats("shop", "orders")
    assert (stats.ready, stats.in_flight) == (159, 41)
    node.run_for(6_000)
    assert node.receive(messages_max=100) == []
    assert node.broker.queues.inspection.stats("shop", "orders").totals.ttl_expired == 159
