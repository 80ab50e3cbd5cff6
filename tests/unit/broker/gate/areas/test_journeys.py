"""Journeys through the gate, on one node: what happened to a message, lists and statistics."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.journeys import (
    JourneyEvents,
    JourneyPage,
    JourneyStats,
    JourneyView,
    Outcome,
    Selection,
)
from goqueue.loop.promise import Cancellation
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.batch import Record
from goqueue.model.errors import AccessDenied, InvalidRequest, UnknownMessage, UnknownTopic
from tests.unit.broker.gate.areas.policies import ALICE, Only, topic
from tests.unit.broker.node import Node

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()
FLUSHED_MS = 1_300


@pytest.fixture
def node() -> Node:
    node = Node(groups__initial_rebalance_delay_ms="0")
    node.create("orders", partitions=2)
    return node


def publish(node: Node, *keys: bytes, partition: int = 0, topic: str = "orders") -> None:
    records = [Record(key, b"value", (("traceparent", PARENT),)) for key in keys]
    node.wait(
        node.broker.gate.records.publish(ALICE, topic=topic, records=records, partition=partition)
    )
    node.run_for(FLUSHED_MS)


def get(node: Node, offset: int, *, partition: int = 0, topic: str = "orders") -> JourneyView:
    return node.wait(
        node.broker.gate.journeys.get(
            ALICE, topic=topic, partition=partition, offset=offset, cancellation=Cancellation()
        )
    )


def rows(node: Node, *, limit: int = 100, cursor: str = "", **wanted: object) -> JourneyPage:
    return node.wait(
        node.broker.gate.journeys.list(
            ALICE,
            selection=Selection(**wanted),  # type: ignore[arg-type]
            limit=limit,
            cursor=cursor,
            cancellation=Cancellation(),
        )
    )


def stats(node: Node, **wanted: object) -> JourneyStats:
    return node.wait(
        node.broker.gate.journeys.stats(
            ALICE,
            selection=Selection(**wanted),  # type: ignore[arg-type]
            cancellation=Cancellation(),
        )
    )


def events(node: Node, *, cursor: str = "", limit: int = 100, **wanted: object) -> JourneyEvents:
    return node.wait(
        node.broker.gate.journeys.events(
            ALICE,
            selection=Selection(**wanted),  # type: ignore[arg-type]
            limit=limit,
            cursor=cursor,
            cancellation=Cancellation(),
        )
    )


def kinds(view: JourneyView) -> list[str]:
    return [one.kind for one in view.entries]


def offsets(page: JourneyPage) -> list[tuple[int, int]]:
    return sorted((one.message.partition, one.message.offset) for one in page.journeys)


def test_a_message_was_received_and_stored(node: Node) -> None:
    publish(node, b"a", b"b")
    view = get(node, 1)
    assert kinds(view) == ["received", "stored"]
    assert [(one.outcome, one.group) for one in view.standings] == [("stored", "")]
    assert (view.message.topic, view.message.partition, view.message.offset) == ("orders", 0, 1)


def test_messages_that_never_were_have_no_journey(node: Node) -> None:
    publish(node, b"a")
    with pytest.raises(UnknownMessage):
        get(node, 1)
    with pytest.raises(UnknownTopic):
        get(node, 0, topic="other")


def test_lists_are_by_time_key_trace_id_and_outcome(node: Node) -> None:
    publish(node, b"a", b"b", b"a")
    publish(node, b"b", partition=1)
    assert offsets(rows(node, topic="orders")) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert offsets(rows(node)) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert offsets(rows(node, topic="orders", partition=1)) == [(1, 0)]
    assert offsets(rows(node, topic="orders", key=b"a")) == [(0, 0), (0, 2)]
    assert offsets(rows(node, trace_id=TRACE)) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert offsets(rows(node, topic="orders", outcome=Outcome.STORED)) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
    ]
    assert offsets(rows(node, topic="orders", outcome=Outcome.ACKED)) == []
    now_ms = node.clock.wall_ms()
    assert offsets(rows(node, topic="orders", from_ms=now_ms)) == []
    assert len(rows(node, topic="orders", until_ms=now_ms).journeys) == 4
    with pytest.raises(InvalidRequest):
        rows(node, key=b"a")


@pytest.mark.parametrize("wanted", [{"topic": "orders"}, {"topic": "orders", "key": b"a"}, {}])
def test_pages_have_every_journey_once(node: Node, wanted: dict[str, object]) -> None:
    for partition in (0, 1, 0):
        publish(node, *[b"a"] * 7, partition=partition)
    found: list[tuple[int, int]] = []
    cursor = ""
    while True:
        page = rows(node, limit=4, cursor=cursor, **wanted)
        assert len(page.journeys) <= 4
        found += offsets(page)
        cursor = page.cursor
        if not cursor:
            break
    assert sorted(found) == [(0, one) for one in range(14)] + [(1, one) for one in range(7)]


@pytest.mark.parametrize("cursor", ["x", "j1", "j1:2", "s12/", "j" + "9" * 30 + ":0:0"])
def test_cursors_of_other_queries_are_refused(node: Node, cursor: str) -> None:
    publish(node, b"a")
    for wanted in ({}, {"key": b"a"}):
        with pytest.raises(InvalidRequest):
            rows(node, topic="orders", cursor=cursor, **wanted)


def test_statistics_count_messages_by_what_happened(node: Node) -> None:
    publish(node, b"a", b"b", b"c")
    publish(node, b"d", partition=1)
    found = stats(node, topic="orders")
    assert [(one.kind, one.messages) for one in found.counts] == [("received", 4), ("stored", 4)]
    assert found.is_complete
    assert [one.messages for one in stats(node, topic="orders", partition=1).counts] == [1, 1]
    with pytest.raises(InvalidRequest):
        stats(node)


def test_events_are_read_as_they_are_recorded(node: Node) -> None:
    publish(node, b"a")
    at_end = events(node, topic="orders")
    assert (list(at_end.events), at_end.is_end) == ([], True)
    publish(node, b"b", b"c")
    page = events(node, topic="orders", cursor=at_end.cursor)
    assert [(one.kind, one.first, one.end) for one in page.events] == [
        ("received", 1, 3),
        ("stored", 1, 3),
    ]
    assert list(events(node, topic="orders", cursor=page.cursor).events) == []
    whole, cursor = [], ""
    while True:
        page = events(node, topic="orders", from_ms=0, limit=1, cursor=cursor)
        whole += page.events
        cursor = page.cursor
        if page.is_end:
            break
    assert [(one.kind, one.first) for one in whole] == [
        ("received", 0),
        ("stored", 0),
        ("received", 1),
        ("stored", 1),
    ]


@pytest.mark.parametrize("wanted", [{"topic": "later"}, {}])
def test_who_follows_before_there_is_a_journal_gets_everything(
    node: Node, wanted: dict[str, object]
) -> None:
    node.create("later", partitions=8)
    at_end = events(node, **wanted)
    assert (list(at_end.events), at_end.cursor, at_end.is_end) == ([], "j", True)
    for partition in range(8):  # Their events are in different partitions of the journal.
        publish(node, b"a", partition=partition, topic="later")
    page = events(node, cursor=at_end.cursor, **wanted)
    assert {one.partition for one in page.events if one.kind == "stored"} == set(range(8))
    publish(node, b"b", topic="later")
    page = events(node, cursor=page.cursor, **wanted)
    assert [(one.kind, one.first) for one in page.events] == [("received", 1), ("stored", 1)]


def all_pages(node: Node, *, limit: int, **wanted: object) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    cursor = ""
    while True:
        page = rows(node, limit=limit, cursor=cursor, **wanted)
        found += offsets(page)
        cursor = page.cursor
        if not cursor:
            return sorted(found)


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_pages_have_every_journey_once_whatever_happened_to_it(node: Node, limit: int) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"deliveries_max": 9, "backoff_ms": 0}))
    publish(node, *[b"a"] * 6)

    def settle(how: str, **options: object) -> None:
        receiver = node.broker.queues.receive("shop", "orders", messages_max=6, consumer="anna")
        receipts = [one.delivery.receipt for one in node.wait(receiver.promise)]
        assert len(receipts) == 6
        node.wait(getattr(node.broker.queues, how)("shop", receipts, **options))
        node.run_for(FLUSHED_MS)

    every = [(0, offset) for offset in range(6)]
    for _ in range(3):
        settle("nack", delay_ms=0)
    assert all_pages(node, limit=limit, topic="orders", outcome=Outcome.WAITING) == every
    assert all_pages(node, limit=limit, topic="orders", group="shop") == every
    settle("reject", reason="no")
    assert all_pages(node, limit=limit, topic="orders", outcome=Outcome.DEAD) == every
    assert all_pages(node, limit=limit, topic="orders", outcome=Outcome.WAITING) == []
    for group in ("", "shop"):
        assert all_pages(node, limit=limit, topic="orders", group=group) == every
    # Dead letters were received by their log and arrived there.
    assert all_pages(node, limit=limit, topic="orders.dlq") == every
    assert all_pages(node, limit=limit, topic="orders.dlq", outcome=Outcome.STORED) == every


def test_an_index_that_is_built_again_says_the_same(node: Node) -> None:
    for number in range(5):
        publish(node, b"a", b"b", partition=number % 2)
    before = [get(node, offset) for offset in range(6)]
    node.broker.gate.journeys._queries.journal._indexes.clear()
    assert [get(node, offset) for offset in range(6)] == before


def test_who_may_not_read_a_topic_learns_nothing(node: Node) -> None:
    publish(node, b"a")
    node.create("secret")
    publish(node, b"a", topic="secret")
    node.broker.gate.policy = Only((Action.READ, topic("secret")))
    for ask in (
        lambda: get(node, 0),
        lambda: rows(node, topic="orders"),
        lambda: stats(node, topic="orders"),
        lambda: events(node, topic="orders"),
    ):
        with pytest.raises(AccessDenied):
            ask()
    assert {one.message.topic for one in rows(node).journeys} == {"secret"}
    assert {one.message.topic for one in rows(node, trace_id=TRACE).journeys} == {"secret"}
    assert {one.topic for one in events(node, from_ms=0).events} == {"secret"}


def test_groups_that_may_not_be_described_are_hidden(node: Node) -> None:
    publish(node, b"a")
    node.host_groups()
    node.commit("billing", 1)
    node.run_for(FLUSHED_MS)
    assert kinds(get(node, 0)) == ["received", "stored", "consumed"]
    group = Resource(ResourceKind.GROUP, "billing")
    read = (Action.READ, topic("orders"))
    node.broker.gate.policy = Only(read)
    assert kinds(get(node, 0)) == ["received", "stored"]
    assert [one.kind for one in stats(node, topic="orders").counts] == ["received", "stored"]
    assert "consumed" not in {one.kind for one in events(node, topic="orders", from_ms=0).events}
    assert not rows(node, topic="orders", outcome=Outcome.CONSUMED).journeys
    node.broker.gate.policy = Only(read, (Action.DESCRIBE, group))
    assert kinds(get(node, 0)) == ["received", "stored", "consumed"]
    assert len(rows(node, topic="orders", outcome=Outcome.CONSUMED).journeys) == 1
