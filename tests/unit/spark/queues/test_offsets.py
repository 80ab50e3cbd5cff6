"""An epoch of a queue in a checkpoint, and how tasks share it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark.queues.offsets import (
    GAP_RECORDS_MAX,
    MessagePosition,
    QueueOffset,
    Run,
    before_all,
    read_queue_offset,
    runs_of,
    shares,
    spans,
)

positions = st.builds(
    MessagePosition,
    st.builds(TopicPartition, st.sampled_from(["orders", "mails"]), st.integers(0, 11)),
    st.integers(0, 40),
    st.integers(1, 2),
    st.sampled_from(["normal", "high"]),
)
received = st.lists(positions, unique_by=lambda one: one[:2], min_size=1)


def an_offset(found: list[MessagePosition]) -> QueueOffset:
    ids = {one.partition.topic: "id" for one in found}
    return QueueOffset("workers", "query", 1, 7, "transaction", ids, runs_of(found))


def single(partition: TopicPartition, runs: Any) -> list[MessagePosition]:
    return [
        MessagePosition(partition, number, run.deliveries, run.priority)
        for run in runs
        for number in range(run.first, run.end)
    ]


@given(received)
def test_an_epoch_comes_back_from_its_checkpoint_as_it_was(found: list[MessagePosition]) -> None:
    offset = an_offset(found)
    text = json.dumps(offset.to_json())
    back = read_queue_offset(json.loads(text))
    assert json.dumps(back.to_json()) == text, "Spark compares offsets as text"
    assert json.dumps(offset.to_json(), sort_keys=True) == text
    assert sorted(one for p, runs in back.runs.items() for one in single(p, runs)) == sorted(found)
    assert back.count == len(found)


@given(received, st.integers(0, 9), st.none() | st.integers(1, 9))
def test_tasks_share_an_epoch_without_gap_or_overlap(
    found: list[MessagePosition], tasks_min: int, records_max: int | None
) -> None:
    offset = an_offset(found)
    tasks = shares(offset, tasks_min=tasks_min, records_max=records_max)
    read = [one for task in tasks for one in single(task.partition, task.runs)]
    assert read == sorted(found)
    assert len(tasks) >= min(tasks_min, len(found))
    assert all(task.runs for task in tasks)
    if records_max is not None:
        assert all(sum(run.length for run in task.runs) <= records_max for task in tasks)


def test_neighbours_that_are_alike_are_one_run() -> None:
    zero = TopicPartition("orders", 0)
    found = [MessagePosition(zero, n, 1, "normal") for n in (3, 1, 2, 7)]
    found += [MessagePosition(zero, 4, 2, "normal"), MessagePosition(zero, 8, 1, "high")]
    assert runs_of(found) == {
        zero: [
            Run(1, 4, 1, "normal"),
            Run(4, 5, 2, "normal"),
            Run(7, 8, 1, "normal"),
            Run(8, 9, 1, "high"),
        ]
    }


def test_small_gaps_are_read_over_and_large_ones_are_not() -> None:
    far = 10 + GAP_RECORDS_MAX
    runs = [Run(0, 5, 1, "low"), Run(9, 10, 1, "low"), Run(far, far + 1, 1, "low")]
    assert spans(runs) == [(0, far + 1)]
    runs[-1] = Run(far + 1, far + 2, 1, "low")
    assert spans(runs) == [(0, 10), (far + 1, far + 2)]
    assert spans([]) == []


def test_every_query_has_a_name_of_its_own() -> None:
    one, two = before_all("workers"), before_all("workers")
    assert one.query != two.query
    assert read_queue_offset(one.to_json()) == one


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": None}, "did not read as a queue"),
        ({"version": 2}, "of version 2"),
        ({"topics": 3}, "no readable epoch"),
        ({"topics": {"orders": {"id": "x", "partitions": {"0": [[1, 2]]}}}}, "no readable epoch"),
    ],
)
def test_a_checkpoint_that_is_not_ours_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        read_queue_offset({**before_all("workers").to_json(), **change})
