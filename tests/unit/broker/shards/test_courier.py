"""The courier: a batch is stored once, however often and by whomever it is sent."""

from __future__ import annotations

import pytest

from goqueue.broker.shards.courier import APPEND_TIMEOUT_MS, BatchNumbers, Courier
from goqueue.broker.topics.topics import Topic
from goqueue.loop.promise import Promise, promised
from goqueue.model.batch import Record
from goqueue.model.errors import (
    FencedProducer,
    NotCoordinator,
    OutOfOrderSequence,
    RecordTooLarge,
    UnknownTopicId,
)
from goqueue.model.names import ProducerIdentity
from goqueue.partition.producers import BATCHES_REMEMBERED
from tests.unit.broker.node import Node

PARTITIONS = 2


class MovingNode(Node):
    """A node, and one mover on it."""

    def start(self) -> None:
        super().start()
        self.is_over = False
        self.courier = self.new_courier()

    def new_courier(self, *, is_checked: bool = False) -> Courier:
        broker = self.broker
        return Courier(
            broker.topics, broker.leaders, is_over=lambda: self.is_over, is_checked=is_checked
        )

    def take_over(self) -> None:
        self.wait(promised(self.courier.renew()))

    @property
    def topic(self) -> Topic:
        return self.broker.topics.get("orders")

    def number(self, *values: str, partition: int = 0) -> BatchNumbers:
        return self.courier.number(self.topic, partition, len(values))

    def send(self, numbers: BatchNumbers, *values: str) -> Promise[int]:
        records = [Record(None, value.encode()) for value in values]
        return promised(self.courier.store(numbers, records))

    def store(self, *values: str, partition: int = 0) -> int:
        return self.wait(self.send(self.number(*values, partition=partition), *values))


@pytest.fixture
def node() -> MovingNode:
    node = MovingNode()
    node.create("orders", PARTITIONS)
    node.take_over()
    return node


def test_batches_of_a_partition_follow_one_another(node: MovingNode) -> None:
    assert node.store("a", "b") == 2
    assert node.store("c") == 3
    assert node.store("d", partition=1) == 1
    assert node.values("orders") == [b"a", b"b", b"c"]
    assert node.values("orders", partition=1) == [b"d"]


def test_a_batch_that_is_sent_again_under_its_numbers_is_stored_once(node: MovingNode) -> None:
    numbers = node.number("a", "b")
    for _ in range(2):
        assert node.wait(node.send(numbers, "a", "b")) == 2
    assert node.values("orders") == [b"a", b"b"]


def test_the_next_owner_stores_a_batch_once_that_the_last_one_may_have_stored(
    node: MovingNode,
) -> None:
    numbers, lost = node.number("a"), node.number("b")
    node.wait(node.send(numbers, "a"))
    node.restart_after_crash()
    assert node.wait(node.send(numbers, "a")) == 1
    assert node.wait(node.send(lost, "b")) == 2
    node.take_over()
    assert node.store("c") == 3
    assert node.values("orders") == [b"a", b"b", b"c"]


def test_a_batch_that_was_stored_long_ago_counts_as_stored(node: MovingNode) -> None:
    first = node.number("a")
    node.wait(node.send(first, "a"))
    for _ in range(BATCHES_REMEMBERED):
        node.store("b")
    assert node.wait(node.send(first, "a")) == 0
    assert node.values("orders").count(b"a") == 1


def test_a_batch_is_sent_until_the_leader_takes_it(node: MovingNode) -> None:
    node.broker.leaders.is_full = lambda: True
    stored = node.send(node.number("a"), "a")
    other = node.send(node.number("b", partition=1), "b")
    node.run_for(3 * APPEND_TIMEOUT_MS)
    assert not stored.is_done
    assert not other.is_done
    node.broker.leaders.is_full = lambda: False
    assert node.wait(stored) == 1
    assert node.wait(other) == 1


def test_whose_state_another_node_owns_sends_nothing_any_more(node: MovingNode) -> None:
    node.broker.leaders.is_full = lambda: True
    stored = node.send(node.number("a"), "a")
    node.is_over = True
    with pytest.raises(NotCoordinator):
        node.wait(stored)
    node.broker.leaders.is_full = lambda: False
    with pytest.raises(NotCoordinator):
        node.store("b")
    assert node.values("orders") == []


def test_a_batch_for_a_deleted_topic_is_given_up(node: MovingNode) -> None:
    numbers = node.number("a")
    node.broker.leaders.is_full = lambda: True
    stored = node.send(numbers, "a")
    node.wait(node.broker.topics.delete("orders"))
    with pytest.raises(UnknownTopicId):
        node.wait(stored)


def test_a_batch_after_one_that_was_lost_is_refused_and_a_new_producer_goes_on(
    node: MovingNode,
) -> None:
    node.store("a")
    node.number("lost")
    with pytest.raises(OutOfOrderSequence):
        node.store("b")
    node.take_over()
    node.store("b")
    assert node.values("orders") == [b"a", b"b"]


def test_numbers_of_a_refused_batch_are_used_by_the_next(node: MovingNode) -> None:
    refused = node.number("a", "b")
    node.courier.reuse(refused)
    assert node.number("c") == refused
    former = refused._replace(producer=ProducerIdentity(refused.producer.producer_id + 1, 0))
    node.courier.reuse(former)
    assert node.number("d").sequence == 1, "those of another owner are not"


def test_a_named_producer_of_a_new_epoch_fences_the_last_one(node: MovingNode) -> None:
    facts = node.broker.topics.facts
    former, late = node.courier, node.number("late")
    epochs = [node.wait(facts.take_over_producer("mover")) for _ in range(2)]
    identities = [ProducerIdentity(one.producer_id, one.epoch) for one in epochs]
    former.write_as(identities[0])
    late = node.number("late")
    node.courier = node.new_courier()
    node.courier.write_as(identities[1])
    node.store("a")
    with pytest.raises(FencedProducer):
        node.wait(node.send(late, "late"))
    assert node.values("orders") == [b"a"]


def test_the_limits_of_a_topic_hold_unless_the_messages_were_checked_before(
    node: MovingNode,
) -> None:
    large = "x" * (2 << 20)
    with pytest.raises(RecordTooLarge):
        node.store(large)
    node.courier = node.new_courier(is_checked=True)
    node.take_over()
    numbers = node.number(large)
    for _ in range(2):
        assert node.wait(node.send(numbers, large)) == 1
    assert node.values("orders") == [large.encode()]
