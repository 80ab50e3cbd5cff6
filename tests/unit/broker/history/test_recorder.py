"""The recorder: rates from counters, the lag of groups, and what it costs in memory."""

from __future__ import annotations

from math import isnan

import pytest

from goqueue.broker.history import recorder as module
from goqueue.broker.history.recorder import (
    DETAIL_STEP_MS,
    NODE_SERIES,
    NODE_STEP_MS,
    Recorder,
)
from goqueue.broker.history.ring import Ring
from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.model.batch import Record
from goqueue.model.session import NOBODY
from tests.unit.broker.node import Node


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders", partitions=2)
    node.create("mails")
    node.broker.measuring.history.recorder.start()
    return node


def recorder_of(node: Node) -> Recorder:
    return node.broker.measuring.history.recorder


def publish(node: Node, topic: str, count: int) -> None:
    records = [Record(b"k", b"v" * 100) for _ in range(count)]
    node.wait(node.broker.publish(topic, records))


def series(node: Node, name: str) -> list[float]:
    end = recorder_of(node).node.end
    column = recorder_of(node).node.column(NODE_SERIES.index(name), end - 3, end)
    return [one for one in column if not isnan(one)]


def test_a_row_has_the_mean_of_its_interval(node: Node) -> None:
    node.run_for(NODE_STEP_MS)
    publish(node, "orders", 200)
    node.run_for(NODE_STEP_MS)
    node.run_for(NODE_STEP_MS)
    assert series(node, "in_per_s") == pytest.approx([0, 20, 0], abs=0.5)
    assert series(node, "in_bytes_per_s")[1] > 2000


def test_rates_are_those_of_the_last_interval(node: Node) -> None:
    node.run_for(NODE_STEP_MS)
    publish(node, "orders", 100)
    node.run_for(NODE_STEP_MS)
    assert recorder_of(node).rates("orders").in_per_s == pytest.approx(10, abs=0.5)
    assert recorder_of(node).rates("mails").in_per_s == 0
    node.run_for(NODE_STEP_MS)
    assert recorder_of(node).rates("orders").in_per_s == 0


def test_topics_with_traffic_have_a_history(node: Node) -> None:
    publish(node, "orders", 600)
    node.run_for(2 * DETAIL_STEP_MS)
    ring = recorder_of(node).topics["orders"]
    values = [one for one in ring.column(0, ring.end - 2, ring.end) if not isnan(one)]
    assert max(values) == pytest.approx(10, abs=1)
    assert "mails" not in recorder_of(node).topics


def test_the_lag_of_groups_has_a_history(node: Node) -> None:
    publish(node, "mails", 30)
    commit = CommitOffsets(
        group_id="readers", offsets=[OffsetToCommit(topic="mails", partition=0, offset=10)]
    )
    node.wait(node.broker.gate.group_offsets.commit(NOBODY, call=commit))
    node.run_for(2 * DETAIL_STEP_MS)
    ring = recorder_of(node).groups["readers"]
    assert list(ring.column(0, ring.end - 1, ring.end)) == [20]
    [age_ms] = ring.column(1, ring.end - 1, ring.end)
    assert age_ms >= DETAIL_STEP_MS


def test_quiet_topics_make_room_for_active_ones(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)
    publish(node, "orders", 10)
    node.run_for(2 * DETAIL_STEP_MS)
    publish(node, "mails", 10)
    node.run_for(2 * DETAIL_STEP_MS)
    assert list(recorder_of(node).topics) == ["orders"], "it was active a moment ago"
    for _ in range(module.QUIET_BUCKETS + 2):
        publish(node, "mails", 10)
        node.run_for(DETAIL_STEP_MS)
    assert list(recorder_of(node).topics) == ["mails"]


def test_a_sample_looks_once_for_quiet_topics_however_many_have_no_history(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many active topics or groups, each of them would look through all histories."""
    monkeypatch.setattr(module, "TOPICS_MAX", 2)
    looked_at: list[Ring] = []
    is_quiet = Ring.is_quiet

    def counted(ring: Ring, since: int) -> bool:
        looked_at.append(ring)
        return is_quiet(ring, since)

    monkeypatch.setattr(Ring, "is_quiet", counted)
    names = [f"topic-{number}" for number in range(20)]
    for name in names:
        node.create(name)
    for _ in range(2):
        for name in names:
            publish(node, name, 1)
        node.run_for(DETAIL_STEP_MS)
    assert len(recorder_of(node).topics) == 2
    assert 2 <= len(looked_at) <= 4


def test_internal_topics_do_not_count(node: Node) -> None:
    node.wait(node.broker.gate.groups.put_queue(NOBODY, group="workers", settings=None))
    node.run_for(2 * DETAIL_STEP_MS)
    assert not any(one.startswith("__") for one in recorder_of(node).topics)
    assert max(series(node, "in_per_s"), default=0) == 0


def test_a_stopped_recorder_takes_no_samples(node: Node) -> None:
    node.run_for(2 * NODE_STEP_MS)
    end = recorder_of(node).node.end
    recorder_of(node).stop()
    node.run_for(5 * NODE_STEP_MS)
    assert recorder_of(node).node.end == end
