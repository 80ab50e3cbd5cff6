"""What an observer sees of calls: with resources and outcome; denials; first uses of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from goqueue.broker.gate.operation import OPERATIONS
from goqueue.loop.promise import Cancellation
from goqueue.model.access import Access, Action, Resource, ResourceKind
from goqueue.model.batch import Record
from goqueue.model.errors import AccessDenied, TenantSuspended, TopicExists
from goqueue.model.observer import ObservedOperation, Observer
from goqueue.model.session import Session
from goqueue.model.tenants import TenantState
from tests.unit.broker.gate.test_gate import ALICE, OnlyTopics, error_of
from tests.unit.broker.node import Node
from tests.unit.broker.tenants import put_tenant

ORDERS = Resource(ResourceKind.TOPIC, "orders")


class Notes(Observer):
    """Notes every event of calls, in order."""

    def __init__(self, *, observes_traffic: bool = True) -> None:
        self.observes_traffic = observes_traffic
        self.notes: list[tuple[Any, ...]] = []

    def called(
        self,
        session: Session,
        operation: ObservedOperation,
        arguments: Mapping[str, Any],
        error: Exception | None,
        duration_ms: int,
    ) -> None:
        accesses = tuple(operation.accesses(arguments))
        self.notes.append(("called", operation.name, accesses, type(error).__name__))

    def queried(
        self, session: Session, operation: ObservedOperation, arguments: Mapping[str, Any]
    ) -> None:
        self.notes.append(("queried", operation.name, tuple(operation.accesses(arguments))))

    def opened(self, session: Session, action: Action, resource: Resource) -> None:
        self.notes.append(("opened", action, resource))

    def created(self, session: Session, resource: Resource, error: Exception | None) -> None:
        self.notes.append(("created", resource, error))

    def denied(
        self, session: Session, action: Action, resource: Resource, *, operation: str
    ) -> None:
        self.notes.append(("denied", operation, action, resource))


def node_with(observer: Notes) -> Node:
    node = Node(observer=observer)
    node.create("orders")
    observer.notes.clear()  # of what front ends ask for themselves
    return node


def test_a_call_comes_with_its_resources_and_its_outcome() -> None:
    seen = Notes()
    topics = node_with(seen).broker.gate.topics
    assert isinstance(error_of(topics.create(ALICE, name="orders")), TopicExists)
    accesses = (Access(Action.DESCRIBE, ORDERS),)
    topics.get(ALICE, topic="orders")
    assert seen.notes == [
        ("called", "topics.create", (), "TopicExists"),
        ("queried", "topics.get", accesses),
    ]


def test_a_partition_is_reported_at_its_first_use() -> None:
    seen = Notes()
    node = node_with(seen)
    grants = node.broker.gate.grants(ALICE)
    for _ in range(3):
        grants.writer("orders", 0)
        grants.reader("orders", 0)
    assert seen.notes == [("opened", Action.WRITE, ORDERS), ("opened", Action.READ, ORDERS)]


def test_without_traffic_only_changes_and_denials_are_reported() -> None:
    seen = Notes(observes_traffic=False)
    node = node_with(seen)
    gate = node.broker.gate
    node.wait(gate.records.publish(ALICE, topic="orders", records=[Record(None, b"v")]))
    gate.topics.get(ALICE, topic="orders")
    grants = gate.grants(ALICE)
    grants.writer("orders", 0)
    node.wait(gate.topics.delete(ALICE, topic="orders"))
    assert seen.notes == [
        ("called", "topics.delete", (Access(Action.DELETE, ORDERS),), "NoneType"),
    ]
    gate.policy = OnlyTopics()
    with pytest.raises(AccessDenied):
        gate.topics.get(ALICE, topic="orders")
    with pytest.raises(AccessDenied):
        gate.grants(ALICE).reader("orders", 0)
    assert seen.notes[1:] == [
        ("denied", "topics.get", Action.DESCRIBE, ORDERS),
        ("denied", "partitions", Action.READ, ORDERS),
    ]


def test_a_topic_that_a_call_needs_is_reported_as_created() -> None:
    seen = Notes(observes_traffic=False)
    node = Node(observer=seen)
    published = node.broker.gate.records.publish(
        ALICE, topic="orders", records=[Record(None, b"v")]
    )
    node.wait(published)
    assert seen.notes == [("created", ORDERS, None)]


def test_receiving_creates_no_topic_without_the_right_to() -> None:
    node = Node(observer=(seen := Notes(observes_traffic=False)))

    class OnlyReading:
        def allows(self, session: Session, action: Action, resource: Resource) -> bool:
            return action is Action.READ

    node.broker.gate.policy = OnlyReading()
    received = node.broker.gate.queues.receive(
        ALICE,
        group="shop",
        topic="orders",
        consumer="anna",
        messages_max=1,
        wait_ms=0,
        visibility_ms=None,
        cancellation=Cancellation(),
    )
    assert isinstance(error_of(received), AccessDenied)
    assert node.broker.topics.find("orders") is None
    assert seen.notes == [("denied", "queues", Action.CREATE, ORDERS)]


def test_what_is_a_change_follows_from_the_action() -> None:
    changes = {name for name, one in OPERATIONS.items() if one.is_change}
    assert {"topics.create", "topics.delete", "queues.purge", "schemas.register"} <= changes
    assert not {"records.publish", "queues.ack", "node.keeps", "topics.describe"} & changes
    for name, one in OPERATIONS.items():
        assert not (one.is_change and one.is_reading), name


def test_what_a_tenant_may_not_do_is_reported() -> None:
    seen = Notes(observes_traffic=False)
    node = node_with(seen)
    node.wait(put_tenant(node.broker, "acme"))
    user = Session("test", principal="User:bob", tenant="acme")
    gate = node.broker.gate
    drained = gate.cluster.drain(user, node=1)
    assert isinstance(error_of(drained), AccessDenied)
    node.wait(put_tenant(node.broker, "acme", TenantState.SUSPENDED))
    assert isinstance(error_of(gate.topics.create(user, name="orders")), TenantSuspended)
    assert [note[:3] for note in seen.notes if note[0] == "denied"] == [
        ("denied", "tenants", Action.ALTER),
        ("denied", "tenants", Action.CREATE),
    ]


def test_denials_of_single_names_are_reported() -> None:
    seen = Notes(observes_traffic=False)
    node = node_with(seen)
    gate = node.broker.gate
    gate.policy = OnlyTopics()
    node.wait(gate.groups.find_coordinators(ALICE, groups=["shop"]))
    assert seen.notes == [
        ("denied", "groups", Action.DESCRIBE, Resource(ResourceKind.GROUP, "shop"))
    ]
