"""Who may do what with queues, and what travels of received messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from goqueue.broker.gate.areas.named_queues import NamedQueueSpec, Posted, Posting, Sent
from goqueue.broker.gate.areas.queues import Received, TopicLanes
from goqueue.broker.gate.areas.queues import _merge_lanes as merge_lanes
from goqueue.broker.gate.portable import Portable
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.batch import Record
from goqueue.model.errors import AccessDenied, GoQueueError, InvalidReceipt, StorageFull
from goqueue.model.session import Session
from goqueue.wire.http.handlers.receiving import places_json, received_json
from tests.unit.broker.node import Node

ALICE = Session("test", principal="User:alice")


class Only:
    """A policy that allows one action on some topics and groups."""

    def __init__(self, action: Action, *names: str) -> None:
        self._action = action
        self._names = names

    def allows(self, session: Session, action: Action, resource: Resource) -> bool:
        return action == self._action and resource.name in self._names


@pytest.fixture
def node() -> Node:
    node = Node()
    node.create("orders")
    return node


def receive(node: Node, group: str = "shop", **more: Any) -> Promise[Received]:
    arguments: dict[str, Any] = {
        "consumer": "anna",
        "messages_max": 10,
        "wait_ms": 0,
        "visibility_ms": None,
        "cancellation": Cancellation(),
        **more,
    }
    return node.broker.gate.queues.receive(ALICE, group=group, topic="orders", **arguments)


class Answers:
    async def receive(self) -> Received:
        raise AssertionError

    async def send(self) -> Sent:
        raise AssertionError


def sent_over(answer: Any, portable: Portable) -> Any:
    return portable.decode_answer(memoryview(portable.encode_answer(answer)))


@pytest.mark.parametrize("skipped", [0, 1])
def test_received_messages_look_the_same_at_another_node(node: Node, skipped: int) -> None:
    """Also those whose receipts say more because they do not follow each other."""
    records = [
        Record(b"k", b"v", (("h", b"x"), ("n", None)), 1_000),
        Record(None, b"\xff", (), 2_000),
        Record(b"", None, (), 3_000),
    ]
    node.wait(node.broker.publish("orders", records))
    if skipped:
        [first] = list(node.wait(receive(node, messages_max=1)))
        node.wait(node.broker.queues.nack("shop", [first.delivery.receipt], delay_ms=0))
    received = node.wait(receive(node))
    arrived = sent_over(received, Portable(Answers.receive))
    assert len(received) == len(arrived) == 3
    assert list(received) == list(arrived)
    assert received.receipts == arrived.receipts == [one.delivery.receipt for one in received]
    for encoding in ("utf8", "base64"):
        assert received_json(received, encoding) == received_json(arrived, encoding)
    assert places_json(received) == places_json(arrived)
    assert [first for *_, first in arrived.runs] == [first for *_, first in received.runs]


def test_what_is_given_back_is_not_counted_and_the_last_delivery_makes_no_dead_letter(
    node: Node,
) -> None:
    settings = {"deliveries_max": 1}
    node.wait(node.broker.queues.groups.create("shop", settings))
    node.wait(node.broker.publish("orders", [Record(None, b"v", (), 1_000)] * 5))
    received = node.wait(receive(node))
    give_back = node.broker.gate.queues.give_back
    some = [*received.receipts[1:], received.receipts[1]]
    assert node.wait(give_back(ALICE, group="shop", receipts=some)) == [None] * 5
    assert node.wait(give_back(ALICE, group="shop", receipts=some)) == [None] * 5
    [invalid] = node.wait(give_back(ALICE, group="shop", receipts=["nonsense"]))
    assert isinstance(invalid, InvalidReceipt)
    again = list(node.wait(receive(node)))
    assert [(one.delivery.offset, one.delivery.attempt) for one in again] == [
        (offset, 1) for offset in range(1, 5)
    ]
    stats = node.wait(node.broker.gate.queues.stats(ALICE, group="shop", topic="orders"))
    assert (stats.totals.nacked, stats.totals.dead_lettered, stats.in_flight) == (0, 0, 5)
    assert node.broker.topics.find("orders.dlq") is None


@pytest.mark.parametrize("restart", [False, True])
def test_keys_stay_in_order_when_messages_are_given_back(node: Node, *, restart: bool) -> None:
    node.wait(node.broker.queues.groups.create("shop", {"key_order": True}))
    node.wait(node.broker.publish("orders", [Record(b"k", b"v", (), 1_000)] * 2))
    first = node.wait(receive(node))
    assert [one.delivery.offset for one in first] == [0]
    node.wait(node.broker.gate.queues.give_back(ALICE, group="shop", receipts=first.receipts))
    if restart:
        node.restart_after_crash()
    again = list(node.wait(receive(node)))
    assert [(one.delivery.offset, one.delivery.attempt) for one in again] == [(0, 1)]


def test_nothing_received_arrives_as_nothing() -> None:
    arrived = sent_over(Received("orders"), Portable(Answers.receive))
    assert (len(arrived), arrived.topic) == (0, "orders")


def test_results_of_sending_arrive_in_order() -> None:
    results: list[Posted | GoQueueError] = [Posted("a", 1), StorageFull("full"), Posted("b", None)]
    arrived = sent_over(Sent(results), Portable(Answers.send)).results
    assert [arrived[0], arrived[2]] == [results[0], results[2]]
    assert isinstance(arrived[1], StorageFull)
    assert str(arrived[1]) == str(results[1])


def test_lanes_are_counted_where_the_replicas_are() -> None:
    mine = TopicLanes({"high": 1}, False, 5, [[1, 0], [0, 0]], {"a": []})
    other = TopicLanes({"high": 1}, False, 5, [[0, 0], [2, 3]], {"b": []})
    whole = merge_lanes({}, [other, mine])
    assert whole.stored == [[1, 0], [2, 3]]
    assert set(whole.groups) == {"a", "b"}


def test_receiving_needs_the_group_and_the_topic(node: Node) -> None:
    for names in (("shop",), ("orders",)):
        node.broker.gate.policy = Only(Action.READ, *names)
        with pytest.raises(AccessDenied):
            node.wait(receive(node))
    node.broker.gate.policy = Only(Action.READ, "shop", "orders")
    assert not node.wait(receive(node))


def test_a_queue_that_may_not_be_described_looks_as_if_it_did_not_exist(node: Node) -> None:
    gate = node.broker.gate
    made = node.wait(gate.named_queues.create(ALICE, spec=NamedQueueSpec("mail")))
    for name, is_visible in (("other", False), ("mail", True)):
        gate.policy = Only(Action.DESCRIBE, name)
        found = made if is_visible else None
        assert gate.named_queues.find(ALICE, name="mail") == found
        assert node.wait(gate.named_queues.find_latest(ALICE, name="mail")) == found
        assert list(node.wait(gate.named_queues.list(ALICE))) == ([made] if is_visible else [])
        assert len(gate.named_queues.names_by_group(ALICE)) == is_visible


def test_sending_needs_the_topic_behind_the_queue(node: Node) -> None:
    gate = node.broker.gate
    spec = NamedQueueSpec("mail", topic="orders")
    made = node.wait(gate.named_queues.create(ALICE, spec=spec))
    posting = Posting(Record(None, b"v"), "id")
    gate.policy = Only(Action.WRITE, "mail")
    with pytest.raises(AccessDenied):
        node.wait(gate.named_queues.send(ALICE, queue=made, postings=[posting]))
    gate.policy = Only(Action.WRITE, "orders")
    sent = node.wait(gate.named_queues.send(ALICE, queue=made, postings=[posting]))
    assert sent.results == [Posted("id", 0)]


def test_a_policy_sees_kinds_of_resources(node: Node) -> None:
    seen: list[Resource] = []

    class Watching:
        def allows(self, session: Session, action: Action, resource: Resource) -> bool:
            seen.append(resource)
            return True

    node.broker.gate.policy = Watching()
    node.wait(receive(node))
    assert seen == [
        Resource(ResourceKind.GROUP, "shop"),
        Resource(ResourceKind.TOPIC, "orders"),
    ]


def test_a_receive_that_is_cancelled_gets_nothing(node: Node) -> None:
    cancellation = Cancellation()
    waiting = receive(node, wait_ms=20_000, cancellation=cancellation)
    node.run_for(10)
    cancellation.cancel()
    assert not node.wait(waiting)
    node.produce("orders", ["a"])
    assert len(node.wait(receive(node))) == 1


def test_a_received_message_keeps_no_batch_when_it_travels(node: Node) -> None:
    node.wait(node.broker.publish("orders", [Record(None, b"x" * 1000) for _ in range(50)]))
    received = node.wait(receive(node, messages_max=1))
    assert len(msgspec.msgpack.encode(received.pack())) < 1200
