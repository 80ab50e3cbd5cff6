"""Records through the gate: publish, read from positions, follow, delete."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.records import EARLIEST, LATEST, At, Position, Published, Span
from goqueue.loop.promise import Cancellation
from goqueue.model.access import Action
from goqueue.model.batch import Record
from goqueue.model.errors import (
    AccessDenied,
    InternalTopic,
    OffsetOutOfRange,
    RecordsKept,
    UnknownMessage,
    UnknownPartition,
)
from tests.unit.broker.gate.areas.policies import ALICE, Only, topic
from tests.unit.broker.node import Node

OFFSET_2 = Position(At.OFFSET, 2)


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders", partitions=2)
    node.produce("orders", ["a", "b", "c", "d"])
    return node


def read(node: Node, *spans: Span, wait_ms: int = 0) -> list[bytes | None]:
    page = node.wait(
        node.broker.gate.records.read(
            ALICE,
            topic="orders",
            spans=spans,
            records_max=100,
            bytes_max=1 << 20,
            wait_ms=wait_ms,
            cancellation=Cancellation(),
        )
    )
    return [record.value for _, record in page.records]


def test_a_read_begins_and_ends_at_positions(node: Node) -> None:
    assert read(node, Span(0, EARLIEST)) == [b"a", b"b", b"c", b"d"]
    assert read(node, Span(0, LATEST)) == []
    assert read(node, Span(0, OFFSET_2)) == [b"c", b"d"]
    assert read(node, Span(0, EARLIEST, OFFSET_2)) == [b"a", b"b"]
    assert read(node, Span(0, Position(At.TIME, 0)), Span(1, EARLIEST)) == [b"a", b"b", b"c", b"d"]
    assert read(node, Span(0, Position(At.TIME, 1 << 60))) == []


def test_an_offset_that_does_not_exist_is_refused(node: Node) -> None:
    with pytest.raises(OffsetOutOfRange):
        read(node, Span(0, Position(At.OFFSET, 5)))
    with pytest.raises(UnknownPartition):
        read(node, Span(7, EARLIEST))
    records = node.broker.gate.records
    found = node.wait(records.read_one(ALICE, topic="orders", partition=0, offset=3, bytes_max=100))
    assert found.value == b"d"
    with pytest.raises(UnknownMessage):
        node.wait(records.read_one(ALICE, topic="orders", partition=0, offset=4, bytes_max=100))


def test_a_stream_goes_on_and_ends_when_the_right_to_it_does(node: Node) -> None:
    followed = node.wait(
        node.broker.gate.records.follow(ALICE, topic="orders", spans=[Span(0, OFFSET_2)])
    )
    page = node.wait(followed.next(records_max=100, bytes_max=1 << 20, wait_ms=0))
    assert [record.value for _, record in page.records] == [b"c", b"d"]
    assert [one.offset for one in followed.places] == [4]
    node.produce("orders", ["e"])
    page = node.wait(followed.next(records_max=100, bytes_max=1 << 20, wait_ms=0))
    assert [record.value for _, record in page.records] == [b"e"]
    node.broker.gate.policy = Only()
    with pytest.raises(AccessDenied):
        node.wait(followed.next(records_max=100, bytes_max=1 << 20, wait_ms=0))


def test_publishing_to_a_new_topic_needs_the_right_to_create_it(node: Node) -> None:
    records = node.broker.gate.records

    def publish(name: str) -> object:
        [result] = node.wait(records.publish(ALICE, topic=name, records=[Record(None, b"v")]))
        return result

    node.broker.gate.policy = Only((Action.WRITE, topic("new")), (Action.WRITE, topic("orders")))
    assert isinstance(publish("orders"), Published)
    for promise in (
        records.publish(ALICE, topic="new", records=[Record(None, b"v")]),
        records.prepare(ALICE, topic="new"),
        records.prepare(ALICE, topic="secrets"),
    ):
        with pytest.raises(AccessDenied):
            node.wait(promise)
    node.broker.gate.policy = None
    assert isinstance(publish("new"), Published)


def test_nobody_publishes_to_an_internal_topic(node: Node) -> None:
    node.host_groups()
    with pytest.raises(InternalTopic):
        node.wait(node.broker.gate.records.prepare(ALICE, topic="__consumer_offsets"))


def test_records_are_deleted_before_a_position(node: Node) -> None:
    records = node.broker.gate.records
    deleted = node.wait(records.delete_before(ALICE, topic="orders", partition=0, before=OFFSET_2))
    assert deleted == [(0, 2)]
    assert node.wait(records.delete_before(ALICE, topic="orders")) == [(0, 4), (1, 0)]
    node.create("state", cleanup_policy="compact")
    with pytest.raises(RecordsKept):
        node.wait(records.delete_before(ALICE, topic="state"))


def test_offsets_are_found_at_positions(node: Node) -> None:
    records = node.broker.gate.records

    def offset(position: Position) -> int | None:
        found = records.find_offset(ALICE, topic="orders", partition=0, position=position)
        return None if found is None else found.offset

    assert offset(EARLIEST) == 0
    assert offset(LATEST) == offset(Position(At.RECORDS_END)) == 4
    assert offset(Position(At.TIME, 0)) == 0
    assert offset(Position(At.TIME, 1 << 60)) is offset(Position(At.REMOTE_END)) is None
    assert offset(Position(At.NEWEST)) is not None
    assert records.epoch_end(ALICE, topic="orders", partition=0, epoch=0) == (0, 4)
