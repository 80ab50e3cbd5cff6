"""Calls that wait when the right to their answer ends: nothing that arrives later reaches them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from goqueue.broker.gate.areas.polling import Poll
from goqueue.broker.gate.areas.records import LATEST, Span
from goqueue.broker.gate.waiting import SWEEP_MIN
from goqueue.groups import JOIN_EPOCH, ConsumerHeartbeat
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.errors import AccessDenied
from tests.unit.broker.gate.areas.policies import ALICE, Only, topic
from tests.unit.broker.node import Node

WAIT_MS = 20_000
GROUP = Resource(ResourceKind.GROUP, "shop")
BOTH = Only(
    (Action.READ, GROUP), (Action.READ, topic("orders")), (Action.DESCRIBE, topic("orders"))
)
GROUP_ONLY = Only((Action.READ, GROUP), (Action.DESCRIBE, topic("orders")))


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders")
    node.broker.gate.policy = BOTH
    return node


def outcomes_of(promise: Promise[Any]) -> list[Any]:
    outcomes: list[Any] = []
    promise.then(lambda value, error: outcomes.append(error or value))
    return outcomes


def receive(node: Node, cancellation: Cancellation | None = None) -> Promise[Any]:
    return node.broker.gate.queues.receive(
        ALICE,
        group="shop",
        topic="orders",
        consumer="anna",
        messages_max=10,
        wait_ms=WAIT_MS,
        visibility_ms=None,
        cancellation=cancellation or Cancellation(),
    )


def read(node: Node) -> Promise[Any]:
    return node.broker.gate.records.read(
        ALICE,
        topic="orders",
        spans=[Span(0, LATEST)],
        records_max=10,
        bytes_max=1 << 20,
        wait_ms=WAIT_MS,
        cancellation=Cancellation(),
    )


@pytest.mark.parametrize("begin", [receive, read])
def test_a_long_poll_ends_with_the_right_to_it(node: Node, begin: Any) -> None:
    outcomes = outcomes_of(begin(node))
    node.run_for(100)
    node.broker.gate.policy = BOTH
    assert outcomes == []  # Another policy under which it is still allowed ends nothing.
    node.broker.gate.policy = GROUP_ONLY
    [error] = outcomes
    assert isinstance(error, AccessDenied)
    node.produce("orders", ["late"])
    node.run_for(WAIT_MS)
    assert len(outcomes) == 1


def test_a_message_is_not_leased_to_a_consumer_that_lost_its_right(node: Node) -> None:
    outcomes_of(receive(node))
    node.run_for(100)
    node.broker.gate.policy = GROUP_ONLY
    node.produce("orders", ["late"])
    node.run_for(100)
    node.broker.gate.policy = BOTH
    received = node.wait(receive(node))
    assert [one.record.value for one in received] == [b"late"]


def test_a_stream_withholds_what_arrives_after_the_right_to_it(node: Node) -> None:
    followed = node.wait(
        node.broker.gate.records.follow(ALICE, topic="orders", spans=[Span(0, LATEST)])
    )
    outcomes = outcomes_of(followed.next(records_max=10, bytes_max=1 << 20, wait_ms=WAIT_MS))
    node.run_for(100)
    node.broker.gate.policy = GROUP_ONLY
    node.produce("orders", ["late"])
    node.run_for(WAIT_MS)
    [error] = outcomes
    assert isinstance(error, AccessDenied)


def test_a_member_gets_nothing_of_a_topic_after_the_right_to_it(node: Node) -> None:
    polling = node.broker.gate.polling
    heartbeat = ConsumerHeartbeat(
        group_id="shop",
        member_id="",
        member_epoch=JOIN_EPOCH,
        subscribed_topics=("orders",),
        rebalance_timeout_ms=60_000,
    )
    joined = node.wait(polling.join(ALICE, call=heartbeat))
    call = Poll(
        group_id="shop",
        member_id=joined.member_id,
        member_epoch=joined.member_epoch,
        records_max=10,
        bytes_max=1 << 20,
    )
    outcomes = outcomes_of(
        polling.poll(ALICE, call=call, wait_ms=WAIT_MS, cancellation=Cancellation())
    )
    node.run_for(100)
    assert outcomes == []
    node.broker.gate.policy = GROUP_ONLY
    node.produce("orders", ["late"])
    node.run_for(WAIT_MS)
    [error] = outcomes
    assert isinstance(error, AccessDenied)
    node.broker.gate.policy = BOTH
    polled = node.wait(polling.poll(ALICE, call=call, wait_ms=0, cancellation=Cancellation()))
    assert [one.record.value for one in polled.records] == [b"late"]


def test_calls_of_clients_that_disconnect_are_forgotten(node: Node) -> None:
    for _ in range(10):
        cancellation = Cancellation()
        promise = receive(node, cancellation)
        node.run_for(10)
        cancellation.cancel()
        promise.abandon()
    del promise
    gc.collect()
    assert len(node.broker.gate._dispatcher._waiting._calls) == 0


def test_calls_that_nobody_waits_for_are_forgotten(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = node.broker.gate._dispatcher._waiting
    monkeypatch.setattr(waiting, "_sweep_at", 10)
    for _ in range(5 * SWEEP_MIN):
        cancellation = Cancellation()
        receive(node, cancellation)
        cancellation.cancel()
        node.run_for(1)
    gc.collect()
    receive(node)
    assert len(waiting._calls) <= SWEEP_MIN
