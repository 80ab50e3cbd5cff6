"""Stored batches whose records cannot be read, as earlier versions took them: all go on behind."""

from __future__ import annotations

import logging

import pytest

from goqueue.broker.queues.lanes import LANES_FILE
from goqueue.broker.reading.records import Place, Reading
from goqueue.delivery import NORMAL, LaneIndex
from goqueue.model.batch import build_batch
from goqueue.model.compression import Compression
from goqueue.storage.framed import write_framed
from tests.unit.broker.queues.test_queues import QueueNode

COUNT_MAX = 2**31 - 1


UNREADABLE = {
    "two billion records in no bytes": build_batch(b"", record_count=COUNT_MAX),
    "two billion records in 13 bytes": build_batch(bytes(13), record_count=COUNT_MAX),
    "records that make no sense": build_batch(b"\xff" * 60, record_count=3),
    "two billion records, packed": build_batch(
        b"no zstd", record_count=COUNT_MAX, attributes=Compression.ZSTD
    ),
    "a header without a name": build_batch(
        b"\x12\x00\x00\x00\x01\x02v\x02\x01\x01", record_count=1
    ),
}


@pytest.fixture(params=UNREADABLE, ids=lambda name: name.replace(" ", "-"))
def node(request: pytest.FixtureRequest) -> QueueNode:
    """A node with a message, a batch that cannot be read, and another message."""
    node = QueueNode()
    node.create("orders")
    node.send("before")
    store(node, bytearray(UNREADABLE[request.param]))
    node.send("behind")
    return node


def store(node: QueueNode, batch: bytearray) -> None:
    """Put a batch into the log as it is, without the checks that a producer's batch gets."""
    partition = node.broker.topics.get("orders").partition(0)
    partition.write(memoryview(batch), now_ms=node.clock.now_ms())


def test_a_queue_group_goes_on_behind_it(node: QueueNode, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        received = node.receive(messages_max=10)
    assert [one.record.value for one in received] == [b"before", b"behind"]
    assert node.settle("ack", received) == [None, None]
    assert [record.message for record in caplog.records if "cannot be read" in record.message]
    assert node.receive(messages_max=10) == []


def test_it_is_not_counted_as_waiting(node: QueueNode) -> None:
    node.ask(messages_max=1)
    node.run_for(100)
    stats = node.broker.queues.inspection.stats("shop", "orders")
    assert stats.ready + stats.in_flight == 2


def test_so_does_a_group_that_finds_the_index_of_an_earlier_version(node: QueueNode) -> None:
    node.receive(messages_max=1)
    partition = node.broker.topics.get("orders").partition(0)
    index = LaneIndex()
    index.note(0, partition.end_offset - 1, NORMAL)
    path = f"{partition.log.folder}/{LANES_FILE}"
    node.stop()
    write_framed(node.disk, path, magic=b"GQLN", version=1, body=index.state())
    node.start()
    node.send("later")
    texts = [one.record.value for one in node.receive("other", messages_max=10)]
    assert texts == [b"before", b"behind", b"later"]


def test_a_reader_goes_on_behind_it(node: QueueNode) -> None:
    place = Place(node.broker.topics.get("orders").partition(0), 0, None)
    reading = Reading([place], records_max=10, bytes_max=1 << 20)
    reading.start(node.broker.reads.fetch, 0)
    page = node.wait(reading.promise)
    assert [record.value for _, record in page.records] == [b"before", b"behind"]
    assert [one.offset for one in page.damaged] == [1]
