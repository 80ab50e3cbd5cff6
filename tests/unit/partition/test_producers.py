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
from goqueue.partition import durability as durability_module
from goqueue.partition import history as history_module
from tests.unit.partition.simulated_partition import NOW_MS, SimulatedPartition

LAST = (1 << 31) - 1


@pytest.mark.parametrize("back", range(1, 6))
def test_a_repetition_of_any_of_the_last_five_batches_is_answered_with_its_first_offset(
    back: int,
) -> None:
    simulated = SimulatedPartition()
    sent = [simulated.send(2 * number, 2) for number in range(8)]
    first = 2 * (8 - back)
    again = simulated.send(first, 2)
    assert (again.base_offset, again.last_offset) == (first, first + 1)
    assert again.base_offset == sent[8 - back].base_offset
    simulated.sync()
    assert simulated.values() == [str(number) for number in range(16)]


def test_a_repetition_of_an_older_batch_is_told_to_be_a_duplicate() -> None:
    simulated = SimulatedPartition()
    for number in range(6):
        simulated.send(number)
    with pytest.raises(DuplicateSequence, match="repeats sequence 0"):
        simulated.send(0)
    assert simulated.partition.end_offset == 6


def test_a_gap_is_out_of_order() -> None:
    simulated = SimulatedPartition()
    simulated.send(0, 3)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 4, but 3 is expected"):
        simulated.send(4)
    assert simulated.send(3).base_offset == 3


def test_a_batch_that_overlaps_what_is_stored_is_out_of_order() -> None:
    simulated = SimulatedPartition()
    simulated.send(0, 3)
    with pytest.raises(OutOfOrderSequence):
        simulated.send(2, 3)


def test_part_of_a_stored_batch_is_a_duplicate() -> None:
    simulated = SimulatedPartition()
    simulated.send(0, 3)
    with pytest.raises(DuplicateSequence):
        simulated.send(0, 2)


def test_a_producer_whose_history_is_not_known_may_begin_anywhere() -> None:
    simulated = SimulatedPartition()
    assert simulated.send(41).base_offset == 0
    assert simulated.send(42).base_offset == 1


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_later_batches_have_overtaken_is_not_taken_for_stored(is_restarted: bool) -> None:
    # The first batch was refused, say for lack of replicas, and those behind it were not.
    simulated = SimulatedPartition()
    for number in range(5, 13):
        simulated.send(number)
    if is_restarted:
        simulated.sync()
        simulated.reopen(simulated.stop())
    for lost in (0, 4):
        with pytest.raises(OutOfOrderSequence, match="13 is expected"):
            simulated.send(lost)
    with pytest.raises(DuplicateSequence):
        simulated.send(5)
    assert simulated.send(13).base_offset == 8


def test_a_new_epoch_begins_with_zero() -> None:
    simulated = SimulatedPartition()
    simulated.send(0, 5)
    with pytest.raises(OutOfOrderSequence, match="must start with 0"):
        simulated.send(5, epoch=1)
    assert simulated.send(0, epoch=1).base_offset == 5
    assert simulated.send(1, epoch=1).base_offset == 6


def test_an_old_epoch_is_fenced() -> None:
    simulated = SimulatedPartition()
    simulated.send(0, epoch=1)
    with pytest.raises(FencedProducer, match="epoch 1 has taken over"):
        simulated.send(1, epoch=0)


def test_producers_do_not_get_in_the_way_of_each_other() -> None:
    simulated = SimulatedPartition()
    simulated.send(0, producer=1)
    simulated.send(0, producer=2)
    simulated.send(1, producer=1)
    simulated.append("of nobody")
    assert simulated.send(1, producer=2).base_offset == 4


@pytest.mark.parametrize("fields", [{"producer_epoch": 0}, {"base_sequence": 0}, {}])
def test_a_producer_id_without_epoch_or_sequence_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidRecord, match="needs an epoch and a sequence"):
        SimulatedPartition().append("a", producer_id=1, **fields)


# Sequence numbers are 31 bits wide


def test_the_number_after_the_last_is_zero() -> None:
    simulated = SimulatedPartition()
    simulated.send(LAST)
    assert simulated.send(0).base_offset == 1
    assert simulated.send(LAST).base_offset == 0, "still remembered"


def test_a_batch_may_reach_beyond_the_last_number() -> None:
    simulated = SimulatedPartition()
    simulated.send(LAST - 1, 4)
    assert simulated.send(LAST - 1, 4).base_offset == 0
    assert simulated.send(2).base_offset == 4


def test_gaps_and_old_repetitions_are_told_apart_across_the_wrap() -> None:
    simulated = SimulatedPartition()
    for first in (LAST - 3, LAST - 2, LAST - 1, LAST, 0, 1):
        simulated.send(first)
    with pytest.raises(DuplicateSequence):
        simulated.send(LAST - 3)
    with pytest.raises(OutOfOrderSequence, match="2 is expected"):
        simulated.send(3)


# What stays after a stop


def _expect_memory(simulated: SimulatedPartition) -> None:
    """Batches 3 to 7 are remembered, earlier ones are not, and 8 comes next."""
    assert [simulated.send(number).base_offset for number in range(3, 8)] == [3, 4, 5, 6, 7]
    with pytest.raises(DuplicateSequence):
        simulated.send(2)
    with pytest.raises(OutOfOrderSequence):
        simulated.send(9)
    with pytest.raises(FencedProducer):
        simulated.send(8, producer=8, epoch=0)
    assert simulated.send(8).base_offset == 9


def _write_history(simulated: SimulatedPartition) -> None:
    for number in range(8):
        simulated.send(number)
    simulated.send(0, producer=8, epoch=3)
    simulated.sync()


def test_producers_are_known_again_after_a_crash() -> None:
    simulated = SimulatedPartition()
    _write_history(simulated)
    simulated.crash()
    _expect_memory(simulated)


def test_producers_are_known_again_after_a_clean_stop() -> None:
    simulated = SimulatedPartition()
    _write_history(simulated)
    state = simulated.stop()
    simulated.reopen(state)
    _expect_memory(simulated)


@pytest.mark.parametrize("snapshot_bytes", [1, 200, 300, 500])
def test_producers_are_known_again_from_a_snapshot_and_the_log_after_it(
    snapshot_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", snapshot_bytes)
    simulated = SimulatedPartition()
    for number in range(8):
        simulated.send(number)
        simulated.sync()
    simulated.send(0, producer=8, epoch=3)
    simulated.sync()
    simulated.keep_snapshot()
    simulated.crash()
    _expect_memory(simulated)


def test_a_snapshot_spares_reading_the_log_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)
    simulated = SimulatedPartition()
    simulated.send(0, 5)
    simulated.sync()
    simulated.keep_snapshot()
    simulated.disk.bytes_read.clear()
    simulated.crash()
    assert simulated.disk.bytes_read["logs/orders/0/producers"]
    assert simulated.send(0, 5).base_offset == 0


def test_a_snapshot_does_not_know_batches_that_came_while_it_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)
    simulated = SimulatedPartition()
    simulated.send(0)
    flush = simulated.partition.durability.flush()
    write_framed = history_module.write_framed

    def write_after_another_batch(*args: Any, **fields: Any) -> None:
        simulated.send(1)  # The event loop goes on while a thread syncs and then saves.
        write_framed(*args, **fields)

    monkeypatch.setattr(history_module, "write_framed", write_after_another_batch)
    flush.run()
    simulated.keep_snapshot()
    simulated.crash()
    assert simulated.partition.end_offset == 1, "the power cut has taken the second batch"
    assert simulated.send(1).base_offset == 1, "so its repetition must be stored"
    simulated.sync()
    assert simulated.values() == ["0", "1"]


def test_a_damaged_snapshot_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)
    simulated = SimulatedPartition()
    _write_history(simulated)
    simulated.keep_snapshot()
    simulated.disk.flip_bit("logs/orders/0/producers", 200)
    simulated.crash()
    _expect_memory(simulated)


def test_a_full_disk_costs_the_snapshot_and_not_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durability_module, "_SNAPSHOT_BYTES", 1)
    simulated = SimulatedPartition()
    appended = simulated.send(0)
    outcome = simulated.ack(appended.last_offset)
    simulated.disk.fill_after(0)
    simulated.sync()
    assert outcome == [None]
    simulated.disk.make_room()
    simulated.send(1)
    simulated.sync()
    assert "producers" in simulated.disk.list("logs/orders/0")


# Forgetting


def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    simulated = SimulatedPartition()
    simulated.send(0, producer=1)
    simulated.now_ms += 1000
    simulated.send(0, producer=2)
    simulated.partition.producers.expire(before_ms=NOW_MS + 1, states_max=10)
    assert [one.producer_id for one in simulated.partition.producers] == [2]
    assert simulated.send(9, producer=1).base_offset == 2, "it may begin anywhere again"


def test_too_many_producers_cost_those_that_were_silent_for_longest() -> None:
    simulated = SimulatedPartition()
    for producer in range(5):
        simulated.now_ms += 1
        simulated.send(0, producer=producer)
    simulated.now_ms += 1
    simulated.send(1, producer=0)
    simulated.partition.producers.expire(before_ms=0, states_max=2)
    assert sorted(one.producer_id for one in simulated.partition.producers) == [0, 4]


def test_a_truncation_takes_back_what_producers_wrote_there() -> None:
    simulated = SimulatedPartition()
    simulated.send(0)
    simulated.send(1)
    simulated.send(0, producer=8)
    simulated.sync()
    simulated.partition.replica.truncate(1, StorageFailed("gone"), now_ms=NOW_MS)
    assert [one.producer_id for one in simulated.partition.producers] == [7]
    assert simulated.send(1).base_offset == 1


def test_a_repetition_in_a_topic_of_append_times_is_answered_with_the_first_time() -> None:
    simulated = SimulatedPartition(PartitionSettings(is_append_time=True))
    assert simulated.send(0).timestamp_ms == NOW_MS
    simulated.now_ms += 50
    assert simulated.send(0).timestamp_ms == NOW_MS
