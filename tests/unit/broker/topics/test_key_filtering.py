"""Key filters in the background: for whom they are built, and that a search then reads little."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.records import EARLIEST, RecordFilter, SearchPage, Span
from goqueue.broker.topics.key_filtering import CHECK_MS
from goqueue.loop.promise import Cancellation
from goqueue.model.batch import Record
from tests.unit.broker.gate.areas.policies import ALICE
from tests.unit.broker.node import Node

VALUE = bytes(100_000)


def node_with(**settings: str) -> Node:
    node = Node()
    node.create("orders", segment_bytes=str(8 << 20), **settings)
    for number in range(120):
        record = Record(b"k%d" % number, VALUE)
        node.wait(node.broker.gate.records.publish(ALICE, topic="orders", records=[record]))
    return node


def search(node: Node, key: bytes) -> SearchPage:
    return node.wait(
        node.broker.gate.records.search(
            ALICE,
            topic="orders",
            spans=[Span(0, EARLIEST)],
            wanted=RecordFilter(key=key),
            limit=10,
            cancellation=Cancellation(),
        )
    )


def filters(node: Node) -> list[str]:
    return [name for name in node.disk.list("logs/orders/0") if name.endswith(".keys")]


@pytest.mark.parametrize("setting", ["off", "search"])
def test_they_are_built_only_if_the_topic_asks_for_it(setting: str) -> None:
    node = node_with(goqueue_key_filters=setting)
    node.run_for(3 * CHECK_MS)
    assert filters(node) == []
    assert search(node, b"k7").skipped_bytes == 0
    assert bool(filters(node)) == (setting == "search")


def test_the_first_search_is_as_fast_as_the_second() -> None:
    node = node_with(goqueue_key_filters="always")
    node.run_for(3 * CHECK_MS)
    assert len(filters(node)) == 2
    page = search(node, b"k7")
    assert [record.offset for _, record in page.records] == [7]
    assert page.read_bytes < 4 << 20 < page.skipped_bytes
    node.stop()


def test_they_are_continued_as_the_log_grows() -> None:
    node = node_with(goqueue_key_filters="always")
    node.run_for(3 * CHECK_MS)
    before = sum(len(node.disk.read_whole(f"logs/orders/0/{name}")) for name in filters(node))
    for number in range(60):
        record = Record(b"later%d" % number, VALUE)
        node.wait(node.broker.gate.records.publish(ALICE, topic="orders", records=[record]))
    node.run_for(3 * CHECK_MS)
    after = sum(len(node.disk.read_whole(f"logs/orders/0/{name}")) for name in filters(node))
    assert after > before
    assert [record.offset for _, record in search(node, b"later3").records] == [123]
