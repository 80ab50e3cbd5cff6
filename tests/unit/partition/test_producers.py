"""Idempotent producers: a repeated batch is stored once, an overtaking one not at all."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.model.errors import (
    DuplicateSequence,
    FencedProducer,
    InvalidRecord,
    OutOfOrderSequence,
    StorageFailed,
)
from goqueue.partition import PartitionSettings
from goqueue.partition import copy as copy_module
from goqueue.partition import history as history_module
from tests.unit.partition.shelf import NOW_MS, Shelf

LAST = (1 << 31) - 1


@pytest.mark.parametrize("back", range(1, 6))
def test_a_repetition_of_any_of_the_last_five_batches_is_answered_with_its_first_offset(
    back: int,
) -> None:
    shelf = Shelf()
    sent = [shelf.send(2 * number, 2) for number in range(8)]
    first = 2 * (8 - back)
    again = shelf.send(first, 2)
    assert (again.base_offset, again.last_offset) == (first, first + 1)
    assert again.base_offset == sent[8 - back].base_offset
    shelf.sync()
    assert shelf.values() == [str(number) for number in range(16)]


def test_a_repetition_of_an_older_batch_is_told_to_be_a_duplicate() -> None:
    shelf = Shelf()
    for number in range(6):
        shelf.send(number)
    with pytest.raises(DuplicateSequence, match="repeats sequence 0"):
        shelf.send(0)
    assert shelf.partition.end_offset == 6


def test_a_gap_is_out_of_order() -> None:
    shelf = Shelf()
    shelf.send(0, 3)
    with pytest.raises(OutOfOrderSequence, match="sends sequence 4, but 3 comes next"):
        shelf.send(4)
    assert shelf.send(3).base_offset == 3


def test_a_batch_that_overlaps_what_is_stored_is_out_of_order() -> None:
    shelf = Shelf()
    shelf.send(0, 3)
    with pytest.raises(OutOfOrderSequence):
        shelf.send(2, 3)


def test_part_of_a_stored_batch_is_a_duplicate() -> None:
    shelf = Shelf()
    shelf.send(0, 3)
    with pytest.raises(DuplicateSequence):
        shelf.send(0, 2)


def test_a_producer_whose_history_is_not_known_may_begin_anywhere() -> None:
    shelf = Shelf()
    assert shelf.send(41).base_offset == 0
    assert shelf.send(42).base_offset == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_later_batches_have_overtaken_is_not_taken_for_stored(is_restarted: bool) -> None:
    # The first batch was refused, say for lack of replicas, and those behind it were not.
    shelf = Shelf()
    for number in range(5, 13):
        shelf.send(number)
    if is_restarted:
        shelf.sync()
        shelf.reopen(shelf.stop())
    for lost in (0, 4):
        with pytest.raises(OutOfOrderSequence, match="13 comes next"):
            shelf.send(lost)
    with pytest.raises(DuplicateSequence):
        shelf.send(5)
    assert shelf.send(13).base_offset == 8


def test_a_new_epoch_begins_with_zero() -> None:
    shelf = Shelf()
    shelf.send(0, 5)
    with pytest.raises(OutOfOrderSequence, match="must begin with 0"):
        shelf.send(5, epoch=1)
    assert shelf.send(0, epoch=1).base_offset == 5
    assert shelf.send(1, epoch=1).base_offset == 6


def test_an_old_epoch_is_fenced() -> None:
    shelf = Shelf()
    shelf.send(0, epoch=1)
    with pytest.raises(FencedProducer, match="epoch 1 has taken over"):
        shelf.send(1, epoch=0)


def test_producers_do_not_get_in_the_way_of_each_other() -> None:
    shelf = Shelf()
    shelf.send(0, producer=1)
    shelf.send(0, producer=2)
    shelf.send(1, producer=1)
    shelf.append("of nobody")
    assert shelf.send(1, producer=2).base_offset == 4


@pytest.mark.parametrize("fields", [{"producer_epoch": 0}, {"base_sequence": 0}, {}])
def test_a_producer_id_without_epoch_or_sequence_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord, match="needs an epoch and a sequence"):
        Shelf().append("a", producer_id=1, **fields)


# Sequence numbers are 31 bits wide


def test_the_number_after_the_last_is_zero() -> None:
    shelf = Shelf()
    shelf.send(LAST)
    assert shelf.send(0).base_offset == 1
    assert shelf.send(LAST).base_offset == 0, "still remembered"


def test_a_batch_may_reach_beyond_the_last_number() -> None:
    shelf = Shelf()
    shelf.send(LAST - 1, 4)
    assert shelf.send(LAST - 1, 4).base_offset == 0
    assert shelf.send(2).base_offset == 4


def test_gaps_and_old_repetitions_are_told_apart_across_the_wrap() -> None:
    shelf = Shelf()
    for first in (LAST - 3, LAST - 2, LAST - 1, LAST, 0, 1):
        shelf.send(first)
    with pytest.raises(DuplicateSequence):
        shelf.send(LAST - 3)
    with pytest.raises(OutOfOrderSequence, match="2 comes next"):
        shelf.send(3)


# What stays after a stop


def _expect_memory(shelf: Shelf) -> None:
    """Batches 3 to 7 are remembered, earlier ones are not, and 8 comes next."""
    assert [shelf.send(number).base_offset for number in range(3, 8)] == [3, 4, 5, 6, 7]
    with pytest.raises(DuplicateSequence):
        shelf.send(2)
    with pytest.raises(OutOfOrderSequence):
        shelf.send(9)
    with pytest.raises(FencedProducer):
        shelf.send(8, producer=8, epoch=0)
    assert shelf.send(8).base_offset == 9


def _write_history(shelf: Shelf) -> None:
    for number in range(8):
        shelf.send(number)
    shelf.send(0, producer=8, epoch=3)
    shelf.sync()


def test_producers_are_known_again_after_a_crash() -> None:
    shelf = Shelf()
    _write_history(shelf)
    shelf.crash()
    _expect_memory(shelf)


def test_producers_are_known_again_after_a_clean_stop() -> None:
    shelf = Shelf()
    _write_history(shelf)
    state = shelf.stop()
    shelf.reopen(state)
    _expect_memory(shelf)


@pytest.mark.parametrize("snapshot_bytes", [1, 200, 300, 500])
def test_producers_are_known_again_from_a_snapshot_and_the_log_after_it(
    snapshot_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", snapshot_bytes)
    shelf = Shelf()
    for number in range(8):
        shelf.send(number)
        shelf.sync()
    shelf.send(0, producer=8, epoch=3)
    shelf.sync()
    shelf.keep_snapshot()
    shelf.crash()
    _expect_memory(shelf)


def test_a_snapshot_spares_reading_the_log_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shelf = Shelf()
    shelf.send(0, 5)
    shelf.sync()
    shelf.keep_snapshot()
    shelf.disk.bytes_read.clear()
    shelf.crash()
    assert shelf.disk.bytes_read["logs/orders/0/producers"]
    assert shelf.send(0, 5).base_offset == 0


def test_a_snapshot_does_not_know_batches_that_came_while_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shelf = Shelf()
    shelf.send(0)
    flush = shelf.partition.flush()
    write_framed = history_module.write_framed

    def write_after_another_batch(*args: Any, **fields: Any) -> None:
        shelf.send(1)  # The event loop goes on while a thread syncs and then saves.
        write_framed(*args, **fields)

    monkeypatch.setattr(history_module, "write_framed", write_after_another_batch)
    flush.run()
    shelf.keep_snapshot()
    shelf.crash()
    assert shelf.partition.end_offset == 1, "the power cut has taken the second batch"
    assert shelf.send(1).base_offset == 1, "so its repetition must be stored"
    shelf.sync()
    assert shelf.values() == ["0", "1"]


def test_a_damaged_snapshot_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shelf = Shelf()
    _write_history(shelf)
    shelf.keep_snapshot()
    shelf.disk.flip_bit("logs/orders/0/producers", 200)
    shelf.crash()
    _expect_memory(shelf)


def test_a_full_disk_costs_the_snapshot_and_not_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shelf = Shelf()
    appended = shelf.send(0)
    outcome = shelf.ack(appended.last_offset)
    shelf.disk.fill_after(0)
    shelf.sync()
    assert outcome == [None]
    shelf.disk.make_room()
    shelf.send(1)
    shelf.sync()
    assert "producers" in shelf.disk.list("logs/orders/0")


# Forgetting


def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    shelf = Shelf()
    shelf.send(0, producer=1)
    shelf.now_ms += 1000
    shelf.send(0, producer=2)
    shelf.partition.producers.expire(before_ms=NOW_MS + 1, states_max=10)
    assert [one.producer_id for one in shelf.partition.producers] == [2]
    assert shelf.send(9, producer=1).base_offset == 2, "it may begin anywhere again"


def test_too_many_producers_cost_those_that_were_silent_for_longest() -> None:
    shelf = Shelf()
    for producer in range(5):
        shelf.now_ms += 1
        shelf.send(0, producer=producer)
    shelf.now_ms += 1
    shelf.send(1, producer=0)
    shelf.partition.producers.expire(before_ms=0, states_max=2)
    assert sorted(one.producer_id for one in shelf.partition.producers) == [0, 4]


def test_a_truncation_takes_back_what_producers_wrote_there() -> None:
    shelf = Shelf()
    shelf.send(0)
    shelf.send(1)
    shelf.send(0, producer=8)
    shelf.sync()
    shelf.partition.truncate(1, StorageFailed("gone"), now_ms=NOW_MS)
    assert [one.producer_id for one in shelf.partition.producers] == [7]
    assert shelf.send(1).base_offset == 1


def test_a_repetition_in_a_topic_of_append_times_is_answered_with_the_first_time() -> None:
    shelf = Shelf(PartitionSettings(is_append_time=True))
    assert shelf.send(0).timestamp_ms == NOW_MS
    shelf.now_ms += 50
    assert shelf.send(0).timestamp_ms == NOW_MS
