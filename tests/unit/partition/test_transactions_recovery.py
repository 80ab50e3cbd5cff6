"""However a partition comes back, what it knows of transactions is what its log says."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goqueue.model.errors import StorageFailed
from goqueue.partition import PartitionState
from goqueue.partition import durability as durability_module
from goqueue.partition.history import _PRODUCERS_MAGIC
from goqueue.storage.aborted import find_aborted
from goqueue.storage.framed import write_framed
from tests.unit.partition.simulated_partition import FOLDER
from tests.unit.partition.till import SMALL, Till, known, truth

PRODUCERS = st.integers(1, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PRODUCERS, st.integers(1, 3)),
        st.tuples(st.just("commit"), PRODUCERS, st.just(0)),
        st.tuples(st.just("abort"), PRODUCERS, st.just(0)),
        st.tuples(st.just("fence"), PRODUCERS, st.just(0)),
        st.tuples(st.just("plain"), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=60,
)


def play(till: Till, steps: list[tuple[str, int, int]]) -> None:
    for number, (step, producer, count) in enumerate(steps):
        if step == "write":
            till.write(producer, *[f"{number}.{one}" for one in range(count)])
        elif step == "plain":
            till.append(*[f"{number}.{one}" for one in range(count)])
        elif step == "sync":
            till.sync()
        else:
            if step == "fence":
                till.epochs[producer] = till.epochs.get(producer, 0) + 1
            till.end(producer, is_commit=step == "commit")


@pytest.fixture(autouse=True, params=[1, 400, 1 << 20])
def snapshot_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durability_module, "_SNAPSHOT_BYTES", request.param)
        yield request.param


playing = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def index_files(till: Till) -> list[str]:
    return [name for name in till.disk.list(FOLDER) if name.endswith(".txnindex")]


@playing
@given(STEPS)
def test_a_running_partition_knows_what_its_log_says(steps: list[tuple[str, int, int]]) -> None:
    till = Till(SMALL)
    play(till, steps)
    assert known(till.partition) == truth(till.partition)
    till.sync()
    assert known(till.partition) == truth(till.partition)


@playing
@given(STEPS, STEPS)
def test_so_does_one_that_was_closed(
    steps: list[tuple[str, int, int]], more: list[tuple[str, int, int]]
) -> None:
    till = Till(SMALL)
    play(till, steps)
    till.reopen(till.stop())
    assert known(till.partition) == truth(till.partition)
    play(till, more)
    till.sync()
    assert known(till.partition) == truth(till.partition)


@playing
@given(STEPS, STEPS, st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
def test_so_does_one_that_lost_its_power(
    steps: list[tuple[str, int, int]],
    more: list[tuple[str, int, int]],
    survival: float,
    has_snapshot: bool,
) -> None:
    till = Till(SMALL, survival=survival)
    play(till, steps)
    if has_snapshot and till.disk.exists(f"{FOLDER}/producers"):
        till.keep_snapshot()
    till.crash()
    assert known(till.partition) == truth(till.partition)
    play(till, more)
    till.sync()
    assert known(till.partition) == truth(till.partition)
    till.crash()
    assert known(till.partition) == truth(till.partition)


@playing
@given(STEPS, st.sampled_from(["remove", "flip", "cut"]), st.data())
def test_so_does_one_whose_indexes_are_damaged(
    steps: list[tuple[str, int, int]], how: str, data: st.DataObject
) -> None:
    till = Till(SMALL)
    play(till, steps)
    state = till.stop()
    for name in index_files(till):
        path = f"{FOLDER}/{name}"
        content = till.disk.read_whole(path)
        at = data.draw(st.integers(0, len(content) - 1))
        if how == "remove":
            till.disk.remove(path)
        elif how == "flip":
            flipped = content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]
            till.disk.replace_whole(path, flipped)
        else:
            till.disk.replace_whole(path, content[:at])
    if data.draw(st.booleans()):
        till.reopen(state)
    else:
        till.crash()
    assert known(till.partition) == truth(till.partition)


@playing
@given(STEPS, st.integers(0, 100), STEPS)
def test_so_does_one_that_was_truncated(
    steps: list[tuple[str, int, int]], cut: int, more: list[tuple[str, int, int]]
) -> None:
    till = Till(SMALL)
    play(till, steps)
    till.sync()
    offset = till.partition.end_offset * cut // 100
    till.partition.replica.truncate(offset, StorageFailed("gone"), now_ms=till.now_ms)
    assert known(till.partition) == truth(till.partition)
    till.epochs = {one.producer_id: one.epoch for one in till.partition.producers}
    play(till, more)
    till.sync()
    assert known(till.partition) == truth(till.partition)
    till.crash()
    assert known(till.partition) == truth(till.partition)


@playing
@given(STEPS, STEPS, st.integers(0, 100))
def test_so_does_one_whose_oldest_segments_are_gone(
    steps: list[tuple[str, int, int]], more: list[tuple[str, int, int]], cut: int
) -> None:
    till = Till(SMALL)
    play(till, steps)
    till.sync()
    partition = till.partition
    taken = partition.log.take_segments(len(partition.log.segments[:-1]) * cut // 100)
    for segment in taken:
        segment.remove()
    partition.history.start_advanced()
    _expect_no_more_than_the_truth(till)
    play(till, more)
    till.sync()
    till.crash()
    _expect_no_more_than_the_truth(till)
    for one in list(till.partition.transactions):
        till.commit(one.producer_id)
    till.sync()
    assert till.committed() == truth(till.partition).committed


def _expect_no_more_than_the_truth(till: Till) -> None:
    """A transaction that began before the log does may hold readers back from its start on."""
    found, expected = till.committed(), truth(till.partition)
    assert found == expected.committed[: len(found)]
    has_earlier = any(
        one.first_offset < till.partition.start_offset for one in till.partition.transactions
    )
    if not has_earlier:
        assert till.partition.last_stable_offset == expected.last_stable_offset


# Single cases


def test_what_producers_are_known_by_is_known_again() -> None:
    till = Till()
    till.write(1, "a")
    till.end(1, is_commit=True, coordinator_epoch=7)
    till.sync()
    till.crash()
    (state,) = till.partition.producers
    assert (state.epoch, state.coordinator_epoch, state.marker_offset) == (0, 7, 1)
    assert till.end(1, is_commit=True, coordinator_epoch=7).base_offset == 1


def test_a_snapshot_from_before_there_were_transactions_is_still_good() -> None:
    till = Till()
    till.write(1, "a", is_transactional=False)
    till.sync()
    body = [1, [[1, 0, till.now_ms, [[40, 41, 0, 0, till.now_ms]]]]]
    path = f"{FOLDER}/producers"
    write_framed(till.disk, path, magic=_PRODUCERS_MAGIC, version=1, body=body)
    till.crash()
    (state,) = till.partition.producers
    assert state.last_sequence == 41, "it is the snapshot that was believed"
    till.write(1, "b")
    assert known(till.partition) == truth(till.partition)


def test_a_partition_that_was_closed_before_there_were_transactions_opens_again() -> None:
    till = Till(SMALL)
    till.write(1, "a" * 700, is_transactional=False)
    till.write(1, "b", is_transactional=False)
    log, producers, epochs = msgspec.to_builtins(till.stop())
    log[1] = [segment[:-1] for segment in log[1]]
    producers = [producers[0], [one[:4] for one in producers[1]]]
    state = msgspec.convert([log, producers, epochs], PartitionState)
    till.reopen(state)
    till.write(1, "c")
    till.abort(1)
    till.sync()
    assert till.committed() == ["a" * 700, "b"]
    assert known(till.partition) == truth(till.partition)


def test_a_snapshot_of_an_open_transaction_does_not_outlive_the_marker_in_the_log() -> None:
    till = Till(SMALL)
    till.write(1, "a" * 300)
    till.write(2, "b" * 100)
    till.partition.durability._snapshot_at = 0
    till.sync()
    till.keep_snapshot()
    till.partition.durability._snapshot_at = 1 << 30
    till.commit(1)
    till.append("c" * 300)
    till.append("d" * 300)
    till.sync()
    log = till.partition.log
    assert log.segments[1].base_offset == 3, "the markers, and nothing else, are missing"
    for segment in log.take_segments(1):
        segment.remove()
    till.disk.sync_folder(FOLDER)
    till.crash()
    assert till.partition.start_offset == 3
    assert list(till.partition.transactions) == []
    assert till.committed() == ["c" * 300, "d" * 300]


def test_a_segment_without_aborted_transactions_has_no_index_of_them() -> None:
    till = Till(SMALL)
    for number in range(30):
        till.write(1, f"{number}" * 20)
        till.commit(1)
    till.sync()
    assert len(till.partition.log.segments) > 3
    assert index_files(till) == []


def test_an_index_goes_with_its_segment() -> None:
    till = Till(SMALL)
    for number in range(30):
        till.write(1, f"{number}" * 20)
        till.abort(1)
    till.sync()
    log = till.partition.log
    assert len(index_files(till)) >= len(log.segments) - 1
    for segment in log.take_segments(len(log.segments) - 1):
        segment.remove()
    assert len(index_files(till)) <= 1


def test_a_sealed_index_is_believed_without_a_look_at_the_log() -> None:
    till = Till(SMALL)
    for number in range(30):
        till.write(1, f"{number}" * 20)
        till.abort(1)
    state = till.stop()
    till.disk.bytes_read.clear()
    till.reopen(state)
    assert len(find_aborted(till.partition.log, 0, till.partition.end_offset)) == 30
    assert not any(path.endswith(".log") for path in till.disk.bytes_read)


def test_a_damaged_marker_leaves_its_transaction_open_until_the_next() -> None:
    till = Till()
    till.write(1, "a")
    till.abort(1)
    till.append("later")
    till.sync()
    path = till.partition.log.active.file.path
    content = bytearray(till.disk.read_whole(path))
    (_, first), (_, marker), _ = till.partition.log.batches(0, until_offset=3)
    content[len(first) + len(marker) - 1] ^= 1
    till.disk.replace_whole(path, bytes(content))
    till.crash()
    assert till.partition.last_stable_offset == 0
    till.abort(1)
    till.sync()
    assert till.partition.last_stable_offset == 4
