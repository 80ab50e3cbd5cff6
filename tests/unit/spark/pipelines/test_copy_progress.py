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
    ranges_of,
)
from goqueue.spark.pipelines.digests import Digest

SOURCE = TopicPartition("orders-eu", 12)


def step(offset_next: int) -> Step:
    stored = (StoredRange(0, 5, 9), StoredRange(1, 7, 7))
    return Step(
        offset_next=offset_next, digest=Digest(6, 2**64 - 1, 3), stored=stored, ends={0: 10, 1: 8}
    )


def test_steps_come_back_in_order(tmp_path: Path) -> None:
    steps = Steps(tmp_path, SOURCE)
    assert (steps.offset_next, steps.ends) == (0, None)
    steps.add(step(10))
    steps.add(step(20))
    again = Steps(tmp_path, SOURCE)
    assert again.done == [step(10), step(20)]
    assert (again.offset_next, again.ends) == (20, {0: 10, 1: 8})
    assert all_steps(tmp_path) == {SOURCE: [step(10), step(20)]}
    assert copied(all_steps(tmp_path).values()) == Digest(12, 2**64 - 2, 6)


def test_every_torn_end_of_a_log_is_survived(tmp_path: Path) -> None:
    steps = Steps(tmp_path, SOURCE)
    steps.add(step(10))
    steps.add(step(20))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        again = Steps(tmp_path, SOURCE)
        lines = whole[:length].count(b"\n")
        assert again.done == [step(10), step(20)][: max(lines - 1, 0)]
        again.add(step(30))
        assert Steps(tmp_path, SOURCE).done[-1] == step(30)
        assert len(Steps(tmp_path, SOURCE).done) == max(lines - 1, 0) + 1


@pytest.mark.parametrize(
    "text", ['{"format": "other"}\n', '{"format": "goqueue-copy", "version": 2}\n', "junk\n"]
)
def test_a_log_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "orders-0.steps").write_text(text)
    with pytest.raises(DamagedProgress):
        Steps(tmp_path, TopicPartition("orders", 0))


def test_places_become_ranges() -> None:
    places = [(0, 4), (1, 1), (0, 3), (0, 6), (1, 2)]
    assert ranges_of(places) == (StoredRange(0, 3, 4), StoredRange(0, 6, 6), StoredRange(1, 1, 2))
    assert ranges_of([]) == ()


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
