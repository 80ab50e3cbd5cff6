"""Searches by key, trace id, header and text, through the gate."""

from __future__ import annotations

import random

import pytest

from goqueue.broker.gate.areas.records import (
    EARLIEST,
    At,
    Position,
    RecordFilter,
    SearchPage,
    Span,
)
from goqueue.broker.reading.record_search import SearchPart, merge_parts
from goqueue.loop.promise import Cancellation
from goqueue.model.batch import Record
from goqueue.model.errors import InvalidRequest, RequestTimedOut
from tests.unit.broker.gate.areas.policies import ALICE
from tests.unit.broker.node import Node

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders", partitions=3)
    return node


def publish(node: Node, partition: int, *records: Record) -> None:
    published = node.broker.gate.records.publish(
        ALICE, topic="orders", records=records, partition=partition
    )
    node.wait(published)


def search(
    node: Node, wanted: RecordFilter, *spans: Span, limit: int = 100, bytes_max: int = 1 << 30
) -> SearchPage:
    everywhere = [Span(number, EARLIEST) for number in range(3)]
    return node.wait(
        node.broker.gate.records.search(
            ALICE,
            topic="orders",
            spans=spans or everywhere,
            wanted=wanted,
            limit=limit,
            bytes_max=bytes_max,
            cancellation=Cancellation(),
        )
    )


def found(page: SearchPage) -> list[tuple[int, int]]:
    return [(number, record.offset) for number, record in page.records]


def test_all_conditions_select_records_of_all_partitions(node: Node) -> None:
    publish(node, 0, Record(b"a", b"red", (("traceparent", PARENT),)), Record(b"b", b"blue"))
    publish(node, 1, Record(b"a", b"blue"), Record(None, None, (("tenant", b"acme"),)))
    assert found(search(node, RecordFilter(key=b"a"))) == [(0, 0), (1, 0)]
    assert found(search(node, RecordFilter(trace_id=TRACE))) == [(0, 0)]
    assert found(search(node, RecordFilter(trace_id=f"1-{TRACE[:8]}-{TRACE[8:]}"))) == [(0, 0)]
    assert found(search(node, RecordFilter(text=b"lu"))) == [(0, 1), (1, 0)]
    assert found(search(node, RecordFilter(header="tenant"))) == [(1, 1)]
    assert found(search(node, RecordFilter(header="tenant", header_value=b"other"))) == []
    assert found(search(node, RecordFilter(key=b"a", text=b"blue"))) == [(1, 0)]
    page = search(node, RecordFilter())
    assert (len(page.records), list(page.places)) == (4, [])


@pytest.mark.parametrize(
    "wanted", [RecordFilter(trace_id="short"), RecordFilter(header_value=b"without a name")]
)
def test_conditions_that_make_no_sense_are_refused(node: Node, wanted: RecordFilter) -> None:
    with pytest.raises(InvalidRequest):
        search(node, wanted)


def test_a_search_stays_between_its_positions(node: Node) -> None:
    publish(node, 0, *(Record(b"k", b"%d" % number) for number in range(10)))
    span = Span(0, Position(At.OFFSET, 3), Position(At.OFFSET, 6))
    assert found(search(node, RecordFilter(key=b"k"), span)) == [(0, 3), (0, 4), (0, 5)]


def test_pages_continue_where_the_last_one_ended(node: Node) -> None:
    chance = random.Random(7)
    for _ in range(60):
        keys = [chance.choice([b"k", b"other"]) for _ in range(chance.randint(1, 9))]
        publish(node, chance.randrange(3), *(Record(key, bytes(50)) for key in keys))
    whole = found(search(node, RecordFilter(key=b"k"), limit=1000))
    assert len(whole) > 100
    pages: list[tuple[int, int]] = []
    spans = [Span(number, EARLIEST) for number in range(3)]
    while spans:
        page = search(node, RecordFilter(key=b"k"), *spans, limit=7)
        assert len(page.records) <= 7
        pages += found(page)
        spans = [Span(number, Position(At.OFFSET, offset)) for number, offset in page.places]
    assert sorted(pages) == sorted(whole)
    assert len(set(pages)) == len(pages)


def test_pages_keep_the_order_of_each_partition_and_prefer_older_records() -> None:
    def part(*times: int) -> SearchPart:
        records = [Record(None, None, (), time, offset) for offset, time in enumerate(times)]
        return SearchPart(records, len(times), is_end=True)

    page = merge_parts({0: part(9, 1), 1: part(9, 1), 2: part(5)}, [(3, 0)], limit=2)
    assert found(page) == [(2, 0), (0, 0)]
    assert list(page.places) == [(0, 1), (1, 0), (3, 0)]


def test_a_client_that_has_gone_ends_its_search(node: Node) -> None:
    publish(node, 0, Record(b"k", b"v"))
    cancellation = Cancellation()
    answer = node.broker.gate.records.search(
        ALICE,
        topic="orders",
        spans=[Span(0, EARLIEST)],
        wanted=RecordFilter(key=b"k"),
        limit=1,
        cancellation=cancellation,
    )
    cancellation.cancel()
    with pytest.raises(RequestTimedOut):
        node.wait(answer)
