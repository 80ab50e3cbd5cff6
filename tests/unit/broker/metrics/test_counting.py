"""What is counted and collected on one node, in every room."""

from __future__ import annotations

import pytest

from goqueue.broker.metrics.observer import OTHER_REASON, MessageCounter
from goqueue.broker.publishing.publisher import Published, Scheduled
from goqueue.loop.promise import Cancellation
from goqueue.metrics import Registry
from goqueue.metrics import catalogue as c
from goqueue.model.attributes import DELAY_HEADER, PRIORITY_HEADER
from goqueue.model.batch import Record
from goqueue.model.names import TopicPartition
from goqueue.model.observer import Outcome, Target
from goqueue.model.session import Session
from tests.simulation.scraping import SESSION, scrape
from tests.unit.broker.node import Node
from tests.unit.broker.tenants import put_tenant

TOPIC, GROUP = "orders", "shop"
PLACE = TopicPartition(TOPIC, 0)
TARGET = Target(PLACE, 0)
KEPT = ("ready", "in_flight", "waiting")


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create(TOPIC, partitions=2)
    return node


def publish(node: Node, records: list[Record]) -> None:
    results = node.wait(node.broker.gate.records.publish(SESSION, topic=TOPIC, records=records))
    assert all(type(one) in (Published, Scheduled) for one in results)


def receive(node: Node, count: int) -> list[str]:
    received = node.wait(
        node.broker.gate.queues.receive(
            SESSION,
            group=GROUP,
            topic=TOPIC,
            consumer="anna",
            messages_max=count,
            wait_ms=0,
            visibility_ms=None,
            cancellation=Cancellation(),
        )
    )
    return [one.delivery.receipt for one in received]


def test_a_counter_that_is_known_begins_at_zero(node: Node) -> None:
    publish(node, [Record(None, b"v")])
    found = scrape(node.broker, node.wait)
    assert found["producer_messages_total"] == {(TOPIC,): 1}
    assert found["producer_duplicates_total"] == {(TOPIC,): 0}
    assert found["schedule_released_total"] == {(): 0}


def test_a_node_that_does_nothing_has_no_families_of_it() -> None:
    node = Node()
    found = scrape(node.broker, node.wait)
    for absent in ("queue_ready_messages", "group_lag_messages", "producer_messages_total"):
        assert absent not in found
    assert not any(name.startswith(("cluster_", "tenant_", "lane_")) for name in found)
    assert found["node_ready"] == {(): 1}
    assert found["storage_partitions"] == {(): 0}


def test_internal_topics_have_sizes_and_no_messages(node: Node) -> None:
    node.wait(node.broker.gate.groups.put_queue(SESSION, group=GROUP, settings=None))
    publish(node, [Record(None, b"v")] * 3)
    node.wait(node.broker.gate.queues.ack(SESSION, group=GROUP, receipts=receive(node, 1)))
    found = scrape(node.broker, node.wait)
    assert found["storage_log_bytes"]["__delivery",] > 0
    for name, values in found.items():
        if name.startswith(("producer_", "consumer_")):
            assert not any(label.startswith("__") for labels in values for label in labels), name


def test_the_states_of_a_queue_add_up(node: Node) -> None:
    node.wait(node.broker.gate.groups.put_queue(SESSION, group=GROUP, settings=None))
    publish(node, [Record(None, b"v")] * 10)
    receipts = receive(node, 6)
    node.wait(node.broker.gate.queues.ack(SESSION, group=GROUP, receipts=receipts[:2]))
    node.wait(
        node.broker.gate.queues.nack(SESSION, group=GROUP, receipts=receipts[2:5], delay_ms=60_000)
    )
    found = scrape(node.broker, node.wait)
    kept = {state: found[f"queue_{state}_messages"][GROUP, TOPIC] for state in KEPT}
    assert kept == {"ready": 4, "in_flight": 1, "waiting": 3}
    assert found["queue_delivered_total"] == {(GROUP, TOPIC): 6}
    assert found["queue_redelivered_total"] == {(GROUP, TOPIC): 0}
    assert found["queue_settled_total"] == {
        (GROUP, TOPIC, "acked"): 2,
        (GROUP, TOPIC, "nacked"): 3,
    }
    details = scrape(node.broker, node.wait, "queues")
    for state in KEPT:
        assert sum(details[f"queue_partition_{state}_messages"].values()) == kept[state]
    node.run_for(70_000)
    assert len(receive(node, 10)) > 4
    node.run_for(100)
    found = scrape(node.broker, node.wait)
    assert found["queue_redelivered_total"][GROUP, TOPIC] >= 3


def test_the_age_of_a_queue_is_that_of_its_oldest_ready_message(node: Node) -> None:
    node.wait(node.broker.gate.groups.put_queue(SESSION, group=GROUP, settings=None))
    receive(node, 1)
    publish(node, [Record(None, b"v")])
    node.run_for(5_000)
    publish(node, [Record(None, b"v")])
    found = scrape(node.broker, node.wait)
    assert found["queue_oldest_age_seconds"][GROUP, TOPIC] == pytest.approx(5, abs=0.1)


def test_lanes_are_shown_if_more_than_one_is_used(node: Node) -> None:
    node.wait(node.broker.gate.groups.put_queue(SESSION, group=GROUP, settings=None))
    publish(node, [Record(None, b"v")])
    receive(node, 1)
    assert "lane_ready_messages" not in scrape(node.broker, node.wait)
    publish(node, [Record(None, b"v", ((PRIORITY_HEADER, b"high"),))] * 3)
    node.run_for(100)
    found = scrape(node.broker, node.wait)
    assert found["lane_ready_messages"][GROUP, TOPIC, "high"] == 3
    details = scrape(node.broker, node.wait, "lanes")
    ready = details["lane_partition_ready_messages"]
    assert sum(value for labels, value in ready.items() if labels[-1] == "high") == 3


def test_schedules_are_counted_and_late_ones_are_measured(node: Node) -> None:
    publish(node, [Record(None, b"v", ((DELAY_HEADER, b"2000"),))] * 3)
    due_s = node.broker.clock.wall_ms() / 1000 + 2
    found = scrape(node.broker, node.wait)
    assert found["schedule_pending_messages"] == {(): 3}
    assert found["schedule_next_due_timestamp_seconds"][()] == pytest.approx(due_s, abs=0.1)
    node.run_for(3_000)
    found = scrape(node.broker, node.wait)
    assert found["schedule_pending_messages"] == {(): 0}
    assert "schedule_next_due_timestamp_seconds" not in found
    assert found["schedule_released_total"] == {(): 3}
    assert found["schedule_lateness_seconds_count"] == {(): 3}
    assert found["schedule_lateness_seconds_bucket"]["+Inf",] == 3
    assert found["producer_messages_total"] == {(TOPIC,): 3}


def test_what_belongs_to_a_tenant_is_counted_for_it(node: Node) -> None:
    node.wait(put_tenant(node.broker, "acme"))
    session = Session("test", tenant="acme")
    node.wait(node.broker.gate.topics.create(session, name="orders"))
    node.wait(
        node.broker.gate.records.publish(session, topic="orders", records=[Record(None, b"v")] * 4)
    )
    publish(node, [Record(None, b"v")])
    found = scrape(node.broker, node.wait)
    assert found["tenant_messages_total"]["acme", "in"] == 4
    assert found["tenant_topics"] == {("acme",): 1}
    assert found["tenant_storage_bytes"]["acme",] > 0
    assert found["producer_messages_total"]["~acme~orders",] == 4
    mine = scrape(node.broker, node.wait, session=session)
    assert mine["producer_messages_total"] == {("orders",): 4}
    assert mine["tenant_topics"] == {("acme",): 1}
    assert not any(name.startswith(("node_", "process_", "audit_")) for name in mine)


def test_the_use_of_quotas_is_shown_by_tenant(node: Node) -> None:
    node.wait(put_tenant(node.broker, "acme"))
    session = Session("test", tenant="acme")
    gate = node.broker.gate
    limits = {"storage_bytes": 5000.0, "producer_byte_rate": 1000.0}
    node.wait(gate.quotas.alter(SESSION, names={"tenant": "acme"}, limits=limits))
    node.wait(gate.quotas.alter(SESSION, names={"user": "anna"}, limits={"request_rate": 5.0}))
    node.wait(gate.topics.create(session, name="orders"))
    node.wait(gate.records.publish(session, topic="orders", records=[Record(None, b"v" * 300)]))
    node.run_for(2_000)
    node.wait(gate.records.publish(session, topic="orders", records=[Record(None, b"v" * 300)]))
    found = scrape(node.broker, node.wait)
    assert found["quota_limit"] == {
        ("acme", "storage_bytes"): 5000,
        ("acme", "producer_byte_rate"): 1000,
    }
    assert found["quota_used"]["acme", "storage_bytes"] > 300
    assert found["quota_used"]["acme", "producer_byte_rate"] > 0


def test_reasons_that_consumers_invent_are_one_series() -> None:
    registry = Registry()
    counter = MessageCounter(registry)
    for reason in ("deliveries_exhausted", "bad address", "no such customer"):
        counter.dead_lettered(GROUP, PLACE, [(0, 2)], reason=reason, target=TARGET)
    children = registry.counters(c.QUEUE_DEAD_LETTERED).children
    assert {labels[2]: one.value for labels, one in children.items()} == {
        "deliveries_exhausted": 2,
        OTHER_REASON: 4,
    }


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_counted(outcome: Outcome) -> None:
    registry = Registry()
    counter = MessageCounter(registry)
    counter.settled(GROUP, PLACE, [(0, 3), (5, 6)], outcome=outcome)
    children = registry.counters(c.QUEUE_SETTLED).children
    assert children[GROUP, TOPIC, outcome.value].value == 4
