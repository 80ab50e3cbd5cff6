"""Single records out of batches: found, missing, damaged, and remembered within bounds."""

from __future__ import annotations

import pytest

from goqueue.broker.queues.records import RecordReader
from goqueue.model.batch import Record
from goqueue.model.errors import CoordinatorNotAvailable, GoQueueError, StorageFailed
from goqueue.partition import Partition
from tests.unit.broker.node import Node


@pytest.fixture
def node() -> Node:
    node = Node(storage__segment_bytes="1KiB")
    node.create("orders")
    return node


def partition_of(node: Node) -> Partition:
    return node.broker.topics.get("orders").partition(0)


def send(node: Node, sizes: list[int], *, key: bytes = b"k") -> None:
    """Batches with so many records each, whose values are their offsets."""
    partition = partition_of(node)
    for size in sizes:
        first = partition.end_offset
        outcomes: list[GoQueueError | None] = []
        records = [
            Record(key, b"%d" % (first + number), timestamp_ms=node.clock.now_ms())
            for number in range(size)
        ]
        node.append(partition, records, outcomes.append)
        node.run_until(lambda outcomes=outcomes: bool(outcomes))  # type: ignore[misc]


def test_any_offsets_are_found_in_any_order(node: Node) -> None:
    send(node, [3, 1, 10, 2, 40, 1])
    reader = RecordReader(1 << 20)
    for offsets in (list(range(57)), [56, 0, 20, 3], list(range(0, 57, 7)), [4]):
        found = reader.read(partition_of(node), offsets)
        assert {one: record.value for one, record in found.records.items()} == {
            one: b"%d" % one for one in offsets
        }
        assert (found.gone, found.error) == ([], None)


def test_a_batch_is_decoded_once_while_it_is_remembered(node: Node) -> None:
    send(node, [10, 10])
    reader = RecordReader(1 << 20)
    for offset in range(20):
        reader.read(partition_of(node), [offset])
    assert reader.batches_decoded == 2
    reader.drop(partition_of(node))
    reader.read(partition_of(node), [0])
    assert reader.batches_decoded == 3


def test_what_is_remembered_is_bounded(node: Node) -> None:
    send(node, [2] * 60)
    reader = RecordReader(20_000)
    for offset in [*range(120), *range(120)]:
        reader.read(partition_of(node), [offset])
    assert reader._cache_bytes <= 20_000
    assert 1 < len(reader._cache) < 30
    assert sum(map(len, reader._bases.values())) == len(reader._cache)


def test_a_batch_of_one_record_is_not_remembered_once_it_was_handed_out(node: Node) -> None:
    send(node, [1] * 20 + [2])
    reader = RecordReader(1 << 20)
    assert len(reader.read(partition_of(node), range(21)).records) == 21
    assert [base for _, base in reader._cache] == [20]
    assert sum(batch.size for batch in reader._cache.values()) == reader._cache_bytes


def test_offsets_before_the_start_are_gone_and_later_ones_are_to_come(node: Node) -> None:
    send(node, [5, 5])
    node.broker.administration.delete_records("orders", 0, before_offset=3)
    found = RecordReader(1 << 20).read(partition_of(node), [0, 2, 3, 9, 10, 99])
    assert sorted(found.records) == [3, 9]
    assert sorted(found.gone) == [0, 2]
    # Whoever chose them would choose them again and again if nothing were said.
    assert isinstance(found.error, CoordinatorNotAvailable)


@pytest.mark.parametrize("is_restarted", [True, False])
def test_damage_costs_its_own_batch(node: Node, is_restarted: bool) -> None:
    send(node, [2, 2, 2])
    path = partition_of(node).log.segments[0].file.path
    size = node.disk.open(path).size() // 3
    if is_restarted:
        node.stop()
    node.disk.open(path).overwrite(size + 63, b"\xff\xff")
    if is_restarted:
        node.start()
    found = RecordReader(1 << 20).read(partition_of(node), range(6))
    assert sorted(found.records) == [0, 1, 4, 5]
    assert found.gone == [2, 3]
    # Unless others have it.
    found = RecordReader(1 << 20, is_curable=lambda _: True).read(partition_of(node), range(6))
    assert (sorted(found.records), found.gone) == ([0, 1], [])
    assert isinstance(found.error, StorageFailed)


def test_a_disk_that_cannot_be_read_is_an_error_and_nothing_is_gone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(node, [2])

    def fail(*_: object, **__: object) -> None:
        raise StorageFailed("The disk is away; retry.")

    monkeypatch.setattr(Partition, "read", fail)
    found = RecordReader(1 << 20).read(partition_of(node), [0, 1])
    assert (found.records, found.gone) == ({}, [])
    assert isinstance(found.error, StorageFailed)


def test_compaction_leaves_gaps_that_are_gone() -> None:
    node = Node(
        storage__segment_bytes="1KiB",
        compaction__check_ms="100",
        compaction__dirty_ratio_min="0.01",
    )
    node.create("orders", cleanup_policy="compact")
    send(node, [5] * 20)
    node.run_for(20_000)
    left = {record.offset for record in node.consume("orders")}
    assert len(left) < 60
    found = RecordReader(1 << 20).read(partition_of(node), range(100))
    assert set(found.records) == left
    assert sorted(found.gone) == sorted(set(range(100)) - left)
