"""Compaction in the background: what is left, what it must not disturb, what must not end it."""

from __future__ import annotations

import pytest

from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.storage.compaction import Compaction
from goqueue.storage.log import Log
from tests.unit.broker.node import Node

SETTINGS = {"cleanup_policy": "compact", "segment_bytes": "1024", "segment_ms": "1000"}


@pytest.fixture
def node() -> Node:
    node = Node(compaction__check_ms="1s", compaction__dirty_ratio_min="0.01")
    node.create("prices", **SETTINGS)
    return node


def put(node: Node, *pairs: tuple[str, str | None], topic: str = "prices") -> None:
    """Store a value under each key, one batch each."""
    partition = node.broker.topics.get(topic).partition(0)
    outcomes: list[GoQueueError | None] = []
    for key, value in pairs:
        record = Record(
            key.encode(), None if value is None else value.encode(), (), node.clock.now_ms()
        )
        node.append(partition, [record], outcomes.append)
    node.run_until(lambda: len(outcomes) == len(pairs))
    assert set(outcomes) == {None}


def latest(node: Node, topic: str = "prices") -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in node.consume(topic)]


def many(count: int = 30) -> list[tuple[str, str | None]]:
    return [(f"key-{number % 3}", f"{number}") for number in range(count)]


def test_of_each_key_the_last_record_is_left_with_its_offset(node: Node) -> None:
    put(node, *many(30))
    node.run_for(20_000)
    assert latest(node) == [(b"key-0", b"27"), (b"key-1", b"28"), (b"key-2", b"29")]
    assert [record.offset for record in node.consume("prices")] == [27, 28, 29]
    assert node.broker.compactor.passes > 0


def test_what_is_left_survives_a_crash_and_a_clean_stop(node: Node) -> None:
    put(node, *many(30))
    node.run_for(20_000)
    before = latest(node)
    node.restart_after_crash()
    assert latest(node) == before
    node.stop()
    node.start()
    assert latest(node) == before


def test_topics_that_are_not_compacted_keep_everything(node: Node) -> None:
    node.create("orders", segment_bytes="1024", segment_ms="1000")
    put(node, *many(30), topic="orders")
    node.run_for(20_000)
    assert len(latest(node, "orders")) == 30


def test_a_disk_that_fails_once_does_not_end_compaction(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(node, *many(30))
    roll = Log.roll

    def fail_once(log: Log, *, now_ms: int) -> object:
        monkeypatch.setattr(Log, "roll", roll)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Log, "roll", fail_once)
    node.run_for(20_000)
    assert len(latest(node)) == 3


def test_a_topic_may_be_deleted_while_it_is_compacted(node: Node) -> None:
    put(node, *many(30))
    node.run_for(1_001)
    node.wait(node.broker.topics.delete("prices"))
    node.run_for(5_000)
    node.create("prices", **SETTINGS)
    put(node, *many(30))
    node.run_for(20_000)
    assert len(latest(node)) == 3


def test_a_node_stops_while_it_compacts(node: Node) -> None:
    put(node, *many(30))
    node.run_for(1_001)
    node.stop()
    node.start()
    node.run_for(20_000)
    assert len(latest(node)) == 3


@pytest.mark.parametrize("fsync", ["every", "interval", "none"])
def test_a_request_compacts_what_is_not_worth_it_yet(fsync: str) -> None:
    node = Node(storage__fsync=fsync, compaction__check_ms="1h", compaction__dirty_ratio_min="1")
    node.create("prices", cleanup_policy="compact")
    put(node, *many(30))
    node.broker.administration.compact("prices")
    node.run_for(10_000)
    assert len(latest(node)) == 3
    assert node.broker.compactor.passes == 1


def test_a_request_for_what_was_deleted_meanwhile_harms_nobody(node: Node) -> None:
    put(node, *many(30))
    node.broker.administration.compact("prices")
    node.wait(node.broker.topics.delete("prices"))
    node.create("prices", **SETTINGS)
    put(node, *many(30))
    node.run_for(20_000)
    assert len(latest(node)) == 3


def test_a_node_that_does_not_compact_says_so() -> None:
    node = Node(compaction__enabled="false")
    node.create("prices", **SETTINGS)
    with pytest.raises(InvalidRequest, match=r"compaction\.enabled"):
        node.broker.administration.compact("prices")


def test_logs_follow_one_another_without_waiting_for_the_next_check() -> None:
    node = Node(compaction__check_ms="1h", compaction__dirty_ratio_min="0.01")
    names = [f"prices-{number}" for number in range(6)]
    for name in names:
        node.create(name, **SETTINGS)
        put(node, *many(30), topic=name)
    node.run_for(3_600_000 + 20_000)
    logs = [node.broker.topics.get(name).partition(0).log for name in names]
    assert all(log.cleaned_offset > 0 for log in logs)
    passes = node.broker.compactor.passes
    node.run_for(600_000)
    assert node.broker.compactor.passes == passes, "without work nothing is done"


def test_a_log_that_is_always_dirty_does_not_keep_others_waiting() -> None:
    node = Node(compaction__check_ms="1s", compaction__dirty_ratio_min="0.01")
    for name in ("busy", "quiet"):
        node.create(name, **SETTINGS)
        put(node, *many(30), topic=name)
    quiet = node.broker.topics.get("quiet").partition(0)
    for _ in range(8):
        put(node, *many(30), topic="busy")
        node.run_for(400)
    assert quiet.log.cleaned_offset > 0


def test_a_pass_that_changes_nothing_is_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node(compaction__check_ms="10s", compaction__dirty_ratio_min="0.01")
    node.create("prices", **SETTINGS)
    put(node, *many(30))
    monkeypatch.setattr(Compaction, "apply", lambda *_: None)
    node.run_for(65_000)
    assert 0 < node.broker.compactor.passes < 10
