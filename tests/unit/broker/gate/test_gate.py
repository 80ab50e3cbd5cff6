"""The steps of a call: authorise, perform; what a policy denies never reaches the broker."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.broker.publishing.publisher import Scheduled
from goqueue.loop.promise import Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.attributes import DELAY_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import AccessDenied, UnknownSchedule
from goqueue.model.session import Session
from tests.unit.broker.node import Node

ALICE = Session("test", principal="User:alice")
NEVER_MS = 1 << 60


class OnlyTopics:
    """A policy that allows everything with some topics, and nothing else."""

    def __init__(self, *topics: str) -> None:
        self.asked: list[tuple[Action, Resource]] = []
        self._allowed = {Resource(ResourceKind.TOPIC, one) for one in topics}

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        assert session is ALICE
        self.asked.append((action, resource))
        return resource in self._allowed


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders")
    return node


def error_of(promise: Promise[Any]) -> Exception:
    errors: list[Exception | None] = []
    promise.then(lambda _, error: errors.append(error))
    [error] = errors
    assert error is not None
    return error


def count(node: Node, topic: str | None) -> Promise[int]:
    return node.broker.gate.schedules.count(ALICE, topic=topic, from_ms=0, until_ms=NEVER_MS)


def schedule(node: Node, topic: str) -> str:
    delayed = Record(None, b"v", ((DELAY_HEADER, b"60000"),))
    [result] = node.wait(node.broker.publish(topic, [delayed]))
    assert isinstance(result, Scheduled)
    return result.schedule_id


def test_without_a_policy_everybody_may_do_everything(node: Node) -> None:
    assert node.wait(count(node, "orders")) == 0


def test_a_policy_is_asked_about_every_resource(node: Node) -> None:
    node.broker.gate.policy = policy = OnlyTopics("orders")
    assert node.wait(count(node, "orders")) == 0
    assert policy.asked == [(Action.DESCRIBE, Resource(ResourceKind.TOPIC, "orders"))]
    denied = error_of(count(node, "secrets"))
    assert isinstance(denied, AccessDenied)
    assert str(denied) == ("User:alice may not DESCRIBE topic 'secrets'; request that permission.")


def test_what_only_the_owner_can_name_is_checked_there(node: Node) -> None:
    schedule_id = schedule(node, "orders")
    schedules = node.broker.gate.schedules
    node.broker.gate.policy = OnlyTopics("other")
    for promise in (
        schedules.show(ALICE, schedule_id=schedule_id),
        schedules.move(ALICE, schedule_id=schedule_id, due_ms=NEVER_MS),
        schedules.cancel(ALICE, schedule_id=schedule_id),
    ):
        assert isinstance(error_of(promise), UnknownSchedule)
    node.broker.gate.policy = OnlyTopics("orders")
    assert node.wait(schedules.show(ALICE, schedule_id=schedule_id)).value == b"v"
    node.wait(schedules.cancel(ALICE, schedule_id=schedule_id))
    assert isinstance(error_of(schedules.show(ALICE, schedule_id=schedule_id)), UnknownSchedule)


def test_each_of_many_is_checked(node: Node) -> None:
    node.create("secrets")
    ids = [schedule(node, "orders"), schedule(node, "secrets")]
    node.broker.gate.policy = OnlyTopics("orders")
    cancelled, refused = node.wait(node.broker.gate.schedules.cancel_many(ALICE, schedule_ids=ids))
    assert cancelled is None
    assert isinstance(refused, UnknownSchedule)


def test_all_gates_of_a_node_have_one_policy(node: Node) -> None:
    node.broker.gate.policy = OnlyTopics()
    counted = node.broker.local_gate.schedules.count(
        ALICE, topic="orders", from_ms=0, until_ms=NEVER_MS
    )
    assert isinstance(error_of(counted), AccessDenied)
    node.broker.local_gate.policy = None
    assert node.wait(count(node, "orders")) == 0


def test_calls_that_were_allowed_are_asked_about_again_when_access_changes(node: Node) -> None:
    node.broker.gate.policy = policy = OnlyTopics("orders")
    for _ in range(3):
        assert node.wait(count(node, "orders")) == 0
    assert len(policy.asked) == 1
    policy._allowed.clear()
    node.broker.gate._authoriser.changed()
    assert isinstance(error_of(count(node, "orders")), AccessDenied)


def test_connections_with_equal_sessions_share_one_object(node: Node) -> None:
    gate = node.broker.gate
    first = gate.shared(Session("kafka", client_id="app", client_host="127.0.0.1"))
    assert gate.shared(Session("kafka", client_id="app", client_host="127.0.0.1")) is first
    assert gate.shared(Session("kafka", client_id="another")) is not first
