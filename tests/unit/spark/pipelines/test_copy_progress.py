"""What a copy has noted is what it goes on from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from goqueue.model.names import TopicPartition
from goqueue.spark.pipelines.copy_progress import (
    DamagedProgress,
    Step,
    Steps,
    StoredRange,
    all_steps,
    copied,
    is_within,
    merged,
)
from goqueue.spark.pipelines.digests import Digest

SOURCE = TopicPartition("orders-eu", 12)


def step(epoch: int, run: int = 1) -> Step:
    stored = (StoredRange(0, 5, 9), StoredRange(1, 7, 7))
    return Step(
        run=run,
        epoch=epoch,
        offset_next=10 * (epoch + 1),
        digest=Digest(6, 2**64 - 1, 3),
        stored=stored,
    )


def test_steps_come_back_in_order(tmp_path: Path) -> None:
    steps = Steps(tmp_path, SOURCE)
    assert (steps.offset_next, steps.epoch_next) == (0, 0)
    steps.add(step(0))
    steps.add(step(1))
    again = Steps(tmp_path, SOURCE)
    assert again.done == [step(0), step(1)]
    assert (again.offset_next, again.epoch_next) == (20, 2)
    assert all_steps(tmp_path) == {SOURCE: [step(0), step(1)]}
    assert copied(all_steps(tmp_path).values()) == Digest(12, 2**64 - 2, 6)


def test_every_torn_end_of_a_log_is_survived(tmp_path: Path) -> None:
    steps = Steps(tmp_path, SOURCE)
    steps.add(step(0))
    steps.add(step(1))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        again = Steps(tmp_path, SOURCE)
        lines = max(whole[:length].count(b"\n") - 1, 0)
        assert again.done == [step(0), step(1)][:lines]
        again.add(step(again.epoch_next, run=2))
        assert Steps(tmp_path, SOURCE).done == again.done
        assert len(again.done) == lines + 1


def test_the_broker_decides_about_the_last_step(tmp_path: Path) -> None:
    steps = Steps(tmp_path, SOURCE)
    steps.settle(run=1, epoch=None)
    steps.add(step(0))
    steps.add(step(1))
    for run, epoch, kept in ((2, 1, 2), (3, 0, 1), (4, 0, 1), (5, None, 0), (6, None, 0)):
        again = Steps(tmp_path, SOURCE)
        again.settle(run=run, epoch=epoch)
        assert again.done == Steps(tmp_path, SOURCE).done == [step(0), step(1)][:kept]
    again.add(step(0, run=6))
    assert Steps(tmp_path, SOURCE).done == [step(0, run=6)]


@pytest.mark.parametrize(("run", "epoch"), [(9, None), (9, 0), (9, 3), (3, 2), (1, 2)])
def test_a_broker_that_knows_something_else_is_not_believed(
    tmp_path: Path, run: int, epoch: int | None
) -> None:
    steps = Steps(tmp_path, SOURCE)
    for number in range(3):
        steps.add(step(number, run=3))
    with pytest.raises(DamagedProgress, match="begin another run"):
        Steps(tmp_path, SOURCE).settle(run=run, epoch=epoch)
    assert len(Steps(tmp_path, SOURCE).done) == 3
    with pytest.raises(DamagedProgress):
        Steps(tmp_path, TopicPartition("lost", 0)).settle(run=2, epoch=0)


def test_lines_of_a_task_that_was_given_up_do_not_count(tmp_path: Path) -> None:
    steps = Steps(tmp_path, SOURCE)
    for one in (step(0), step(1), step(1, run=2), step(2), step(2, run=2), step(3)):
        steps.add(one)
    assert Steps(tmp_path, SOURCE).done == [step(0), step(1, run=2), step(2, run=2)]


@pytest.mark.parametrize(
    "text", ['{"format": "other"}\n', '{"format": "goqueue-copy", "version": 1}\n', "junk\n"]
)
def test_a_log_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "orders-0.steps").write_text(text)
    with pytest.raises(DamagedProgress):
        Steps(tmp_path, TopicPartition("orders", 0))


def test_ranges_that_touch_are_joined() -> None:
    ranges = [
        StoredRange(0, 5, 9),
        StoredRange(0, 0, 4),
        StoredRange(0, 11, 12),
        StoredRange(2, 1, 1),
    ]
    assert merged(ranges) == {0: [(0, 9), (11, 12)], 2: [(1, 1)]}


def test_offsets_are_found_in_ranges() -> None:
    found = is_within(np.arange(0, 14), [(2, 4), (7, 7), (10, 12)])
    assert np.flatnonzero(found).tolist() == [2, 3, 4, 7, 10, 11, 12]
