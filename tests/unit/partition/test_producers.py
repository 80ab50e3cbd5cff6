"""Idempotent producers: a repeated batch is stored once, an overtaking one not at all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.partition.shard import NOW_MS, Shelf

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

LAST = (1 << 31) - 1


@pytest.mark.parametrize("back", range(1, 6))
def test_a_repetition_of_any_of_the_last_five_batches_is_answered_with_its_first_offset(
    back: int,
) -> None:
    shard = Shelf()
    sent = [shard.send(2 * number, 2) for number in range(8)]
    first = 2 * (8 - back)
    again = shard.send(first, 2)
    assert (again.base_offset, again.last_offset) == (first, first + 1)
    assert again.base_offset == sent[8 - back].base_offset
    shard.sync()
    assert shard.values() == [str(number) for number in range(16)]


def test_a_repetition_of_an_older_batch_is_told_to_be_a_duplicate() -> None:
    shard = Shelf()
    for number in range(6):
        shard.send(number)
    with pytest.raises(DuplicateSequence, match="repeats sequence 0"):
        shard.send(0)
    assert shard.partition.end_offset == 6


def test_a_gap_is_out_of_order() -> None:
    shard = Shelf()
    shard.send(0, 3)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 4, but 3 is expected"):
        shard.send(4)
    assert shard.send(3).base_offset == 3


def test_a_batch_that_overlaps_what_is_stored_is_out_of_order() -> None:
    shard = Shelf()
    shard.send(0, 3)
    with pytest.raises(OutOfOrderSequence):
        shard.send(2, 3)


def test_part_of_a_stored_batch_is_a_duplicate() -> None:
    shard = Shelf()
    shard.send(0, 3)
    with pytest.raises(DuplicateSequence):
        shard.send(0, 2)


def test_a_producer_whose_history_is_not_known_may_begin_anywhere() -> None:
    shard = Shelf()
    assert shard.send(41).base_offset == 0
    assert shard.send(42).base_offset == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_later_batches_have_overtaken_is_not_taken_for_stored(is_restarted: bool) -> None:
    # The first batch was refused, say for lack of replicas, and those behind it were not.
    shard = Shelf()
    for number in range(5, 13):
        shard.send(number)
    if is_restarted:
        shard.sync()
        shard.reopen(shard.stop())
    for lost in (0, 4):
        with pytest.raises(OutOfOrderSequence, match="13 is expected"):
            shard.send(lost)
    with pytest.raises(DuplicateSequence):
        shard.send(5)
    assert shard.send(13).base_offset == 8


def test_a_new_epoch_begins_with_zero() -> None:
    shard = Shelf()
    shard.send(0, 5)
    with pytest.raises(OutOfOrderSequence, match="must start with 0"):
        shard.send(5, epoch=1)
    assert shard.send(0, epoch=1).base_offset == 5
    assert shard.send(1, epoch=1).base_offset == 6


def test_an_old_epoch_is_fenced() -> None:
    shard = Shelf()
    shard.send(0, epoch=1)
    with pytest.raises(FencedProducer, match="epoch 1 has taken over"):
        shard.send(1, epoch=0)


def test_producers_do_not_get_in_the_way_of_each_other() -> None:
    shard = Shelf()
    shard.send(0, producer=1)
    shard.send(0, producer=2)
    shard.send(1, producer=1)
    shard.append("of nobody")
    assert shard.send(1, producer=2).base_offset == 4


@pytest.mark.parametrize("fields", [{"producer_epoch": 0}, {"base_sequence": 0}, {}])
def test_a_producer_id_without_epoch_or_sequence_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord, match="needs an epoch and a sequence"):
        Shelf().append("a", producer_id=1, **fields)


# Sequence numbers are 31 bits wide


def test_the_number_after_the_last_is_zero() -> None:
    shard = Shelf()
    shard.send(LAST)
    assert shard.send(0).base_offset == 1
    assert shard.send(LAST).base_offset == 0, "still remembered"


def test_a_batch_may_reach_beyond_the_last_number() -> None:
    shard = Shelf()
    shard.send(LAST - 1, 4)
    assert shard.send(LAST - 1, 4).base_offset == 0
    assert shard.send(2).base_offset == 4


def test_gaps_and_old_repetitions_are_told_apart_across_the_wrap() -> None:
    shard = Shelf()
    for first in (LAST - 3, LAST - 2, LAST - 1, LAST, 0, 1):
        shard.send(first)
    with pytest.raises(DuplicateSequence):
        shard.send(LAST - 3)
    with pytest.raises(OutOfOrderSequence, match="2 is expected"):
        shard.send(3)


# What stays after a stop


def _expect_memory(shard: Shelf) -> None:
    """Batches 3 to 7 are remembered, earlier ones are not, and 8 comes next."""
    assert [shard.send(number).base_offset for number in range(3, 8)] == [3, 4, 5, 6, 7]
    with pytest.raises(DuplicateSequence):
        shard.send(2)
    with pytest.raises(OutOfOrderSequence):
        shard.send(9)
    with pytest.raises(FencedProducer):
        shard.send(8, producer=8, epoch=0)
    assert shard.send(8).base_offset == 9


def _write_history(shard: Shelf) -> None:
    for number in range(8):
        shard.send(number)
    shard.send(0, producer=8, epoch=3)
    shard.sync()


def test_producers_are_known_again_after_a_crash() -> None:
    shard = Shelf()
    _write_history(shard)
    shard.crash()
    _expect_memory(shard)


def test_producers_are_known_again_after_a_clean_stop() -> None:
    shard = Shelf()
    _write_history(shard)
    state = shard.stop()
    shard.reopen(state)
    _expect_memory(shard)


@pytest.mark.parametrize("snapshot_bytes", [1, 200, 300, 500])
def test_producers_are_known_again_from_a_snapshot_and_the_log_after_it(
    snapshot_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", snapshot_bytes)
    shard = Shelf()
    for number in range(8):
        shard.send(number)
        shard.sync()
    shard.send(0, producer=8, epoch=3)
    shard.sync()
    shard.keep_snapshot()
    shard.crash()
    _expect_memory(shard)


def test_a_snapshot_spares_reading_the_log_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shard = Shelf()
    shard.send(0, 5)
    shard.sync()
    shard.keep_snapshot()
    shard.disk.bytes_read.clear()
    shard.crash()
    assert shard.disk.bytes_read["logs/orders/0/producers"]
    assert shard.send(0, 5).base_offset == 0


def test_a_snapshot_does_not_know_batches_that_came_while_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shard = Shelf()
    shard.send(0)
    flush = shard.partition.flush()
    write_framed = history_module.write_framed

    def write_after_another_batch(*args: Any, **fields: Any) -> None:
        shard.send(1)  # The event loop goes on while a thread syncs and then saves.
        write_framed(*args, **fields)

    monkeypatch.setattr(history_module, "write_framed", write_after_another_batch)
    flush.run()
    shard.keep_snapshot()
    shard.crash()
    assert shard.partition.end_offset == 1, "the power cut has taken the second batch"
    assert shard.send(1).base_offset == 1, "so its repetition must be stored"
    shard.sync()
    assert shard.values() == ["0", "1"]


def test_a_damaged_snapshot_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shard = Shelf()
    _write_history(shard)
    shard.keep_snapshot()
    shard.disk.flip_bit("logs/orders/0/producers", 200)
    shard.crash()
    _expect_memory(shard)


def test_a_full_disk_costs_the_snapshot_and_not_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy_module, "_SNAPSHOT_BYTES", 1)
    shard = Shelf()
    appended = shard.send(0)
    outcome = shard.ack(appended.last_offset)
    shard.disk.fill_after(0)
    shard.sync()
    assert outcome == [None]
    shard.disk.make_room()
    shard.send(1)
    shard.sync()
    assert "producers" in shard.disk.list("logs/orders/0")


# Forgetting


def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    shard = Shelf()
    shard.send(0, producer=1)
    shard.now_ms += 1000
    shard.send(0, producer=2)
    shard.partition.producers.expire(before_ms=NOW_MS + 1, states_max=10)
    assert [one.producer_id for one in shard.partition.producers] == [2]
    assert shard.send(9, producer=1).base_offset == 2, "it may begin anywhere again"


def test_too_many_producers_cost_those_that_were_silent_for_longest() -> None:
    shard = Shelf()
    for producer in range(5):
        shard.now_ms += 1
        shard.send(0, producer=producer)
    shard.now_ms += 1
    shard.send(1, producer=0)
    shard.partition.producers.expire(before_ms=0, states_max=2)
    assert sorted(one.producer_id for one in shard.partition.producers) == [0, 4]


def test_a_truncation_takes_back_what_producers_wrote_there() -> None:
    shard = Shelf()
    shard.send(0)
    shard.send(1)
    shard.send(0, producer=8)
    shard.sync()
    shard.partition.truncate(1, StorageFailed("gone"), now_ms=NOW_MS)
    assert [one.producer_id for one in shard.partition.producers] == [7]
    assert shard.send(1).base_offset == 1


def test_a_repetition_in_a_topic_of_append_times_is_answered_with_the_first_time() -> None:
    shard = Shelf(PartitionSettings(is_append_time=True))
    assert shard.send(0).timestamp_ms == NOW_MS
    shard.now_ms += 50
    assert shard.send(0).timestamp_ms == NOW_MS
