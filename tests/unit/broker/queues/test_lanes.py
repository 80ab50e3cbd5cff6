"""Lane indexes follow their logs in steps, are saved, and are found again."""

from __future__ import annotations

import pytest

from goqueue.broker.queues import lanes as queue_lanes
from goqueue.broker.queues.lanes import PartitionLanes
from goqueue.model.batch import Record, encode_batch
from goqueue.model.compression import Compression
from goqueue.partition import Partition
from tests.unit.broker.queues.test_queues import QueueNode


@pytest.fixture
def node() -> QueueNode:
    node = QueueNode()
    node.create("orders", 3)
    return node


def partition_of(node: QueueNode, number: int = 0) -> Partition:
    return node.broker.topics.get("orders").partition(number)


def lanes_of(node: QueueNode) -> list[int]:
    lanes = PartitionLanes(node.disk, partition_of(node), now_ms=0)
    while lanes.follow(1, 0)[1]:
        pass
    return [lanes.index.lane_of(offset) for offset in range(lanes.index.end)]


def test_every_record_of_a_batch_has_its_own_lane(node: QueueNode) -> None:
    node.send("plain")
    partition = partition_of(node)
    records = [
        Record(None, b"v", (("goqueue-priority", name),), node.clock.now_ms())
        for name in (b"critical", b"4", b"low", b"nonsense", b"1")
    ]
    records.append(Record(None, b"goqueue-priority", (), node.clock.now_ms()))
    for codec in (Compression.NONE, Compression.ZSTD):
        batch = encode_batch(records, codec=codec)
        partition.write(memoryview(batch), now_ms=node.clock.now_ms())
    node.run_for(100)
    assert lanes_of(node) == [2, *[0, 4, 3, 2, 1, 2] * 2]


def test_a_topic_may_switch_attributes_off(node: QueueNode) -> None:
    node.wait(node.broker.topics.configure("orders", {"goqueue_attributes_enable": "false"}))
    node.send("plain", headers=[("goqueue-priority", b"0")])
    assert lanes_of(node) == [2]


def test_a_long_log_is_taken_up_in_steps_that_let_others_live(
    node: QueueNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        for value in range(40):
            node.send(f"{number}-{value}", partition=number)
    monkeypatch.setattr(queue_lanes, "STEP_BYTES", 500)
    steps: list[int] = []
    real = PartitionLanes.follow

    def counted(self: PartitionLanes, bytes_max: int, now_ms: int) -> tuple[int, bool]:
        size, has_more = real(self, bytes_max, now_ms)
        steps.append(size)
        return size, has_more

    monkeypatch.setattr(PartitionLanes, "follow", counted)
    assert len(node.receive(messages_max=1000)) == 120
    assert max(steps) < 700
    assert len(steps) > 10


def test_what_is_saved_is_not_read_again(node: QueueNode) -> None:
    for number in range(20):
        node.send(f"v{number}", headers=[("goqueue-priority", b"%d" % (number % 5))])
    node.receive()
    node.stop()
    node.start()
    lanes = PartitionLanes(node.disk, partition_of(node), now_ms=0)
    assert lanes.index.end == 20
    assert lanes.index.counts(0, 20) == [4] * 5
    assert lanes.save() is None, "nothing new is to be saved"


def test_an_index_that_knows_more_than_the_log_is_not_believed(node: QueueNode) -> None:
    node.send("a", "b", "c")
    lanes = PartitionLanes(node.disk, partition_of(node), now_ms=0)
    lanes.follow(1 << 20, 0)
    lanes.index.note(3, 9, 0)
    write = lanes.save()
    assert write is not None
    write()
    assert PartitionLanes(node.disk, partition_of(node), now_ms=0).index.end == 0
