"""What happens by itself now and then: retention, forgotten producers, and a look at the disk."""

from __future__ import annotations

import pytest

from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, OffsetOutOfRange, StorageFull
from goqueue.partition import Partition
from tests.unit.broker.node import Node

HOUR_MS = 3_600_000
VALUE = "v" * 400  # two batches fit into a segment of the smallest size


def small_node(**settings: str) -> Node:
    return Node(storage__retention_check_ms="1s", **settings)


def segments(partition: Partition) -> int:
    return len(partition.log.segments)


# By time


def test_records_older_than_retention_are_forgotten() -> None:
    node = small_node()
    partition = node.create("orders", retention_ms=str(HOUR_MS), segment_bytes="1024").partition(0)
    node.produce("orders", [VALUE] * 4)
    node.run_for(HOUR_MS - 10_000)
    node.produce("orders", [VALUE] * 2)
    assert partition.start_offset == 0
    node.run_for(20_000)
    assert partition.start_offset == 4
    assert len(node.values("orders")) == 2
    with pytest.raises(OffsetOutOfRange):
        partition.read(3, bytes_max=100)


def test_even_the_newest_records_expire() -> None:
    node = small_node()
    partition = node.create("orders", retention_ms="5000").partition(0)
    node.produce("orders", ["a", "b"])
    node.run_for(20_000)
    assert (partition.start_offset, partition.end_offset) == (2, 2)
    assert node.values("orders") == []
    node.produce("orders", ["c"])
    assert [record.offset for record in node.consume("orders")] == [2], "offsets go on"


def test_the_age_of_records_is_what_their_timestamps_say() -> None:
    node = small_node()
    partition = node.create("orders", retention_ms=str(HOUR_MS)).partition(0)
    outcomes: list[GoQueueError | None] = []
    old = Record(None, b"old", timestamp_ms=node.clock.now_ms() - 2 * HOUR_MS)
    node.append(partition, [old], outcomes.append)
    node.run_for(5_000)
    assert partition.start_offset == 1


def test_without_retention_records_stay() -> None:
    node = small_node()
    partition = node.create("orders", retention_ms="-1").partition(0)
    node.produce("orders", ["a"])
    node.run_for(30 * 24 * HOUR_MS // 1000)
    assert partition.start_offset == 0


def test_a_compacted_topic_does_not_forget_by_age() -> None:
    node = small_node(compaction__enabled="false")
    partition = node.create("orders", cleanup_policy="compact", retention_ms="1").partition(0)
    outcomes: list[GoQueueError | None] = []
    record = Record(b"key", b"kept", timestamp_ms=node.clock.now_ms())
    node.append(partition, [record], outcomes.append)
    node.run_for(10_000)
    assert node.values("orders") == [b"kept"]


# By size


@pytest.mark.parametrize(("retention_bytes", "left"), [(-1, 8), (100_000, 8), (2_500, 6), (0, 2)])
def test_the_oldest_segments_go_while_enough_stays(retention_bytes: int, left: int) -> None:
    node = small_node()
    node.create("orders", retention_bytes=str(retention_bytes), segment_bytes="1024")
    node.produce("orders", [VALUE] * 8)
    node.run_for(3_000)
    assert len(node.values("orders")) == left


def test_the_files_of_forgotten_segments_are_removed_and_stay_so() -> None:
    node = small_node()
    partition = node.create("orders", retention_bytes="0", segment_bytes="1024").partition(0)
    node.produce("orders", [VALUE] * 8)
    assert segments(partition) == 4
    node.run_for(3_000)
    logs = [name for name in node.disk.list("logs/orders/0") if name.endswith(".log")]
    assert len(logs) == segments(partition)
    node.stop()
    node.start()
    assert node.broker.topics.get("orders").partition(0).start_offset == partition.start_offset


def test_records_that_were_deleted_on_demand_give_their_room_back() -> None:
    node = small_node()
    partition = node.create("orders", segment_bytes="1024").partition(0)
    node.produce("orders", [VALUE] * 4)
    node.broker.administration.delete_records("orders", 0, before_offset=-1)
    node.run_for(3_000)
    assert (partition.start_offset, partition.log.size) == (4, 0)
    node.restart_after_crash()
    again = node.broker.topics.get("orders").partition(0)
    assert (again.start_offset, again.end_offset) == (4, 4)


def test_what_is_not_committed_is_not_forgotten() -> None:
    node = small_node()
    partition = node.create("orders", retention_ms="1").partition(0)
    old = Record(None, b"old", timestamp_ms=1)
    node.append(partition, [old], lambda _: None)
    node.broker.upkeep.apply_retention()
    assert (partition.start_offset, segments(partition)) == (0, 1)


def test_one_failing_partition_does_not_keep_the_others_from_being_cleaned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = small_node()
    for name in ("bad", "good"):
        node.create(name, retention_ms="2000")
        node.produce(name, ["a"])
    bad = node.broker.topics.get("bad").partition(0).log
    good = node.broker.topics.get("good").partition(0)
    roll = type(bad).roll

    def fail_for_bad(log: object, *, now_ms: int) -> object:
        if log is bad:
            raise OSError(28, "No space left on device")
        return roll(log, now_ms=now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(type(bad), "roll", fail_for_bad)
    node.run_for(10_000)
    assert good.start_offset == 1
    monkeypatch.undo()
    node.run_for(5_000)
    assert bad.start_offset == 1, "and it is tried again"


# Producers


def test_silent_producers_are_forgotten() -> None:
    node = small_node(producers__id_expiry_ms="1h")
    partition = node.create("orders").partition(0)
    record = Record(None, b"a", timestamp_ms=node.clock.now_ms())
    node.append(partition, [record], lambda _: None, producer=(7, 0))
    node.run_for(HOUR_MS // 2)
    node.append(partition, [record], lambda _: None, producer=(8, 0))
    node.run_for(HOUR_MS // 2 + 5_000)
    assert [one.producer_id for one in partition.producers] == [8]


# Room on the disk


def test_a_full_disk_refuses_writes_within_a_second_and_takes_them_again_by_itself() -> None:
    node = Node(storage__free_bytes_min="1000")
    node.create("orders")
    node.disk.fill_after(999)
    node.run_for(1_000)
    assert node.broker.upkeep.is_full
    with pytest.raises(StorageFull, match="disk is full"):
        node.produce("orders", ["a"])
    node.disk.make_room()
    node.run_for(1_000)
    assert not node.broker.upkeep.is_full
    node.produce("orders", ["a"])


def test_a_node_that_starts_on_a_full_disk_knows_it() -> None:
    node = Node(storage__free_bytes_min="1000")
    node.disk.fill_after(500)
    node.stop()
    node.start()
    assert node.broker.upkeep.is_full


def test_a_stopped_node_does_nothing_any_more() -> None:
    node = small_node()
    node.create("orders")
    node.stop()
    node.clock.run_for(100)  # A thread may still be reserving space.
    assert not node.clock.has_timers()
