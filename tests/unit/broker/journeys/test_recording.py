"""What is written to the journal of journeys: every event once, with its details."""

from __future__ import annotations

import pytest

from goqueue.broker.journeys import outlets, recovery
from goqueue.broker.journeys.pieces import Piece, Results
from goqueue.broker.publishing.publisher import Scheduled
from goqueue.delivery.redrive import RedriveOrder
from goqueue.loop.promise import Promise
from goqueue.metrics import catalogue
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import NotCoordinator
from goqueue.model.names import JOURNEYS_TOPIC, SCHEDULED_TOPIC
from goqueue.model.session import Session
from goqueue.tracing.events import Event, Kind, Link, Source
from tests.simulation.journal import Entry, entries, kinds_of, of_message
from tests.unit.broker.queues.test_queues import QueueNode
from tests.unit.wire.kafka.client import Client
from tests.unit.wire.kafka.requests import produce_request, records_for

FLUSHED_MS = 1_300


class JourneyNode(QueueNode):
    def journal(self) -> list[Entry]:
        """Return everything in the journal, once what happened so far is in it."""
        self.run_for(FLUSHED_MS)
        topic = self.broker.topics.find(JOURNEYS_TOPIC)
        return [] if topic is None else list(entries(topic.partitions))

    def kinds(self, offset: int, topic: str = "orders", partition: int = 0) -> list[Kind]:
        return kinds_of(self.journal(), topic, partition, offset)

    def events(self, offset: int, topic: str = "orders", partition: int = 0) -> list[Event]:
        return of_message(self.journal(), topic, partition, offset)


@pytest.fixture
def node() -> JourneyNode:
    node = JourneyNode()
    node.create("orders", 2)
    return node


def test_an_idle_node_has_no_journal(node: JourneyNode) -> None:
    node.run_for(10_000)
    assert node.journal() == []
    assert node.broker.topics.find(JOURNEYS_TOPIC) is None


def test_a_message_is_received_stored_delivered_and_acknowledged(node: JourneyNode) -> None:
    node.send("a", "b", "c")
    node.settle("ack", node.receive(messages_max=2))
    received, stored, delivered, acked = node.events(1)
    assert (received.kind, received.first, received.end) == (Kind.RECEIVED, 0, 3)
    assert received.size > 0
    assert (stored.kind, stored.details.replicas) == (Kind.STORED, 1)
    assert (delivered.kind, delivered.details.group) == (Kind.DELIVERED, "shop")
    assert (delivered.details.consumer, delivered.details.attempt) == ("anna", 1)
    assert acked.kind is Kind.ACKED
    assert not any(event.details.is_recovered for event in node.events(1))
    assert node.kinds(2) == [Kind.RECEIVED, Kind.STORED]


def test_who_produced_is_written() -> None:
    client = Client()
    client.call("Produce", produce_request(9, client.subject, records_for(9, b"a")), 9)
    client.node.run_for(FLUSHED_MS)
    topic = client.node.broker.topics.get(JOURNEYS_TOPIC)
    [received, _] = of_message(entries(topic.partitions), "orders", 0, 0)
    assert received.details.listener == "kafka"
    assert received.details.principal == "User:ANONYMOUS"


def test_a_message_is_nacked_expires_and_is_dead_lettered_and_redriven(node: JourneyNode) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"deliveries_max": 3}))
    node.send("a")
    node.settle("nack", node.receive(), delay_ms=2_000)
    node.run_for(2_000)
    node.receive(visibility_ms=1_000)
    node.run_for(1_500)
    node.settle("reject", node.receive(), reason="no")
    assert node.kinds(0) == [
        Kind.RECEIVED,
        Kind.STORED,
        Kind.DELIVERED,
        Kind.NACKED,
        Kind.DELIVERED,
        Kind.LEASE_EXPIRED,
        Kind.DELIVERED,
        Kind.REJECTED,
        Kind.DEAD_LETTERED,
    ]
    events = node.events(0)
    assert [one.details.attempt for one in events if one.kind is Kind.DELIVERED] == [1, 2, 3]
    assert events[3].due_ms - events[3].time_ms == pytest.approx(2_000, abs=50)
    assert (events[-1].link, events[-1].details.reason) == (Link("orders.dlq", 0, 0), "no")
    arrival = next(one for one in node.events(0, "orders.dlq") if one.kind is Kind.ARRIVED)
    assert (arrival.link, arrival.details.reason) == (Link("orders", 0, 0), "dead-lettered")
    node.wait(node.broker.redrives.start("orders", RedriveOrder()))
    node.run_for(5_000)
    [redriven] = [one for one in node.events(0, "orders.dlq") if one.kind is Kind.REDRIVEN]
    assert redriven.link == Link("orders", 0, 1)
    assert node.kinds(1) == [Kind.RECEIVED, Kind.STORED, Kind.ARRIVED]


def test_a_delayed_message_is_linked_to_where_it_goes(node: JourneyNode) -> None:
    delayed = Record(None, b"v", ((DELAY_HEADER, b"5000"),))
    [result] = node.wait(node.broker.publish("orders", [delayed]))
    assert type(result) is Scheduled
    node.run_for(6_000)
    topic = node.broker.topics.get(SCHEDULED_TOPIC)
    [number] = [one.name.partition for one in topic.partitions if one.end_offset]
    scheduled, released = node.events(0, SCHEDULED_TOPIC, number)
    assert scheduled.kind is Kind.SCHEDULED
    assert scheduled.due_ms - scheduled.time_ms == pytest.approx(5_000, abs=50)
    assert released.kind is Kind.RELEASED
    assert released.link is not None
    assert released.link.topic == "orders"
    target = released.link.partition
    arrival = next(one for one in node.events(0, "orders", target) if one.kind is Kind.ARRIVED)
    assert arrival.link == Link(SCHEDULED_TOPIC, number, 0)


def test_excluded_topics_are_not_recorded(node: JourneyNode) -> None:
    node.wait(node.broker.topics.configure("orders", {"goqueue_journeys_enable": "false"}))
    node.send("a")
    node.settle("ack", node.receive())
    assert node.kinds(0) == []
    node.wait(node.broker.topics.configure("orders", {}))
    node.send("b")
    node.run_for(1_000)
    assert node.kinds(1) == [Kind.RECEIVED, Kind.STORED]
    assert not node.events(1)[0].details.is_recovered
    assert node.kinds(0) == [Kind.RECEIVED, Kind.STORED]  # for they are in the log
    assert node.events(0)[0].details.is_recovered


def test_deleted_topics_are_retired(node: JourneyNode) -> None:
    node.send("a")
    node.run_for(FLUSHED_MS)
    node.broker.topics.delete("orders")
    node.run_for(FLUSHED_MS)
    assert node.kinds(0) == [Kind.RECEIVED, Kind.STORED, Kind.RETIRED]


@pytest.mark.parametrize("how", ["stop", "kill", "crash"])
@pytest.mark.parametrize("wait_ms", [0, 20, 300])
def test_a_restart_loses_no_event_and_writes_none_twice(
    node: JourneyNode, how: str, wait_ms: int
) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"deliveries_max": 1}))
    node.send("a", "b", "c")
    messages = node.receive(messages_max=3)
    node.settle("ack", messages[:1])
    node.settle("reject", messages[1:2], reason="no")
    node.run_for(wait_ms)
    getattr(node, how)()
    node.start()
    node.run_for(2_000)
    for offset, last in ((0, Kind.ACKED), (1, Kind.DEAD_LETTERED), (2, Kind.DELIVERED)):
        kinds = node.kinds(offset)
        assert [kinds.count(one) for one in (Kind.RECEIVED, Kind.STORED, last)] == [1, 1, 1]
        assert len(kinds) == len(set(kinds))
    letter = next(one for one in node.events(1) if one.kind is Kind.DEAD_LETTERED)
    assert letter.link == Link("orders.dlq", 0, 0)
    node.send("d")
    assert node.kinds(3) == [Kind.RECEIVED, Kind.STORED]


def test_what_a_journal_that_is_away_cannot_take_is_derived_when_it_is_back(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node.broker.journeys is not None
    recorder, owners = node.broker.journeys.recorder, node.broker.journeys.owners
    node.send("a")
    node.settle("ack", node.receive())
    node.run_for(FLUSHED_MS)

    def refuse(number: int, pieces: list[Piece]) -> Promise[Results]:
        refused: Promise[Results] = Promise()
        refused.reject(NotCoordinator("away"))
        return refused

    with monkeypatch.context() as away:
        away.setattr(outlets, "QUEUE_BYTES_MAX", 2_000)
        away.setattr(owners, "write", refuse)
        for _ in range(60):
            node.send("b")
            node.settle("ack", node.receive())
            node.run_for(600)
            assert recorder.outlets.size <= 2_000
    node.run_for(5_000)
    found = node.journal()
    for offset in range(61):
        kinds = kinds_of(found, "orders", 0, offset)  # in the order in which they were derived
        assert sorted(kinds) == [Kind.RECEIVED, Kind.STORED, Kind.DELIVERED, Kind.ACKED]
    assert any(event.details.is_recovered for event in of_message(found, "orders", 0, 30))


def test_a_late_retry_does_not_repeat_what_is_complete(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node.broker.journeys is not None
    recorder, owners = node.broker.journeys.recorder, node.broker.journeys.owners
    monkeypatch.setattr(recovery, "RETRY_MS", 5_000)
    node.send("a")
    node.run_for(FLUSHED_MS)

    def refuse(number: int, sources: list[tuple[Source, int]]) -> Promise[Results]:
        raise NotCoordinator("away")

    with monkeypatch.context() as away:
        away.setattr(owners, "ask", refuse)
        recorder._derive_later(recorder._of_topics["orders"][0])  # type: ignore[arg-type]
        node.run_for(100)
    recorder._derive_later(recorder._of_topics["orders"][0])  # type: ignore[arg-type]
    node.run_for(100)
    node.send("b")
    node.run_for(FLUSHED_MS)  # The journal has more than the start of what was recovered.
    node.run_for(2 * recovery.RETRY_MS)
    node.send("c")
    for offset in range(3):
        assert node.kinds(offset) == [Kind.RECEIVED, Kind.STORED]
    assert recorder.recovery.oldest_ms() is None


def test_a_source_that_falls_behind_while_it_is_recovered_is_recovered_again(
    node: JourneyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node.broker.journeys is not None
    recorder, owners = node.broker.journeys.recorder, node.broker.journeys.owners
    node.send("a")
    node.run_for(FLUSHED_MS)
    source = recorder._of_topics["orders"][0]
    assert source is not None
    asked, ask = [], owners.ask

    def fall_behind(number: int, sources: list[tuple[Source, int]]) -> Promise[Results]:
        asked.append(number)
        if len(asked) == 1:
            recorder._derive_later(source)
        return ask(number, sources)

    with monkeypatch.context() as slow:
        slow.setattr(owners, "ask", fall_behind)
        recorder._derive_later(source)
        node.run_for(100)
        node.send("b")
        node.run_for(FLUSHED_MS)
    assert len(asked) > 1
    for offset in range(2):
        assert node.kinds(offset) == [Kind.RECEIVED, Kind.STORED]
    assert recorder.recovery.oldest_ms() is None


def test_who_sent_each_record_of_a_batch_is_written(node: JourneyNode) -> None:
    ada, bob = Session("http", "User:ada"), Session("grpc", "User:bob")
    records = [Record(None, b"v")]
    results = [
        node.broker.publish("orders", count * records, partition=0, session=session)
        for count, session in ((2, ada), (1, ada), (1, bob), (1, None))
    ]
    for result in results:
        node.wait(result)
    received = [
        (one.first, one.end, one.details.listener, one.details.principal)
        for one in (entry.event for entry in node.journal())
        if one.kind is Kind.RECEIVED
    ]
    assert received == [(0, 3, "http", "User:ada"), (3, 4, "grpc", "User:bob"), (4, 5, "", "")]
    counted = node.broker.metrics.families()
    batches = counted[catalogue.PRODUCER_BATCHES]["orders",]
    assert (batches.value, node.kinds(4)) == (1, [Kind.RECEIVED, Kind.STORED])  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_letters_whose_redrive_a_crash_has_taken_from_the_journal_are_marked(
    node: JourneyNode, how: str
) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"deliveries_max": 1}))
    node.send("a", "b")
    node.settle("reject", node.receive(messages_max=1), reason="no")
    node.run_for(FLUSHED_MS)
    node.wait(node.broker.redrives.start("orders", RedriveOrder()))
    node.run_until(lambda: node.broker.topics.get("orders").partition(0).end_offset == 3)
    node.run_for(20)  # It is done, and nothing was handed on.
    getattr(node, how)()
    node.start()
    node.run_for(5_000)
    kinds = node.kinds(0, "orders.dlq")
    assert kinds.count(Kind.REDRIVEN) + kinds.count(Kind.RECOVERED) == 1
    assert Kind.RECOVERED not in node.kinds(1)


def test_records_that_are_removed_while_a_source_is_recovered_leave_no_gap(
    node: JourneyNode,
) -> None:
    """The log may begin after the offset from which on it is recorded live."""
    assert node.broker.journeys is not None
    recorder = node.broker.journeys.recorder
    node.send(*"ab")
    node.run_for(FLUSHED_MS)
    source = recorder._of_topics["orders"][0]
    assert source is not None
    recorder._derive_later(source)
    node.send(*"cd")
    source.hold(4)  # It is recorded live from here on.
    node.send(*"efgh")
    node.broker.topics.get("orders").partition(0).retention.delete_before(6)
    node.run_for(2_000)
    for offset in (2, 3):
        assert Kind.RECOVERED in node.kinds(offset)
    for offset in range(4, 8):
        kinds = node.kinds(offset)
        assert kinds.count(Kind.RECEIVED) == kinds.count(Kind.STORED) == 1
