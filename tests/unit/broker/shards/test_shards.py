"""Shards on a node: they open and close with leadership, and calls wait for them."""

from __future__ import annotations

import pytest

from goqueue.groups import CommitOffsets, OffsetToCommit
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError, NotCoordinator
from goqueue.model.names import OFFSETS_TOPIC, TRANSACTION_TOPIC, ProducerIdentity, TopicPartition
from tests.simulation.world import World

ORDERS = TopicPartition("orders", 0)


def a_node() -> World:
    world = World(0, groups__offsets_partitions="2", transactions__state_partitions="2")
    world.create("orders")
    return world


def commit(world: World, group: str) -> Promise[object]:
    offset = OffsetToCommit(topic="orders", partition=0, offset=7)
    return world.broker.groups.commit_offsets(CommitOffsets(group_id=group, offsets=[offset]))


def begin(world: World) -> ProducerIdentity:
    transactions = world.broker.transactions
    identity: ProducerIdentity = world.wait(transactions.initialise("shop", timeout_ms=60_000))
    world.wait(transactions.add_partitions("shop", identity, [ORDERS]))
    return identity


def resign_all(world: World, topic: str) -> None:
    shards = {
        OFFSETS_TOPIC: world.broker.groups.shards,
        TRANSACTION_TOPIC: world.broker.transactions.shards,
    }[topic]
    for partition in world.broker.topics.get(topic).partitions:
        shards.resign(partition)


def outcome_of(promise: Promise[object]) -> list[type[Exception] | None]:
    outcomes: list[type[Exception] | None] = []
    promise.then(lambda _, error: outcomes.append(None if error is None else type(error)))
    return outcomes


def test_the_first_call_of_a_single_node_makes_the_topic_and_its_shards() -> None:
    world = a_node()
    assert world.broker.groups.shards.topic is None
    assert world.broker.groups.shards.find("readers") is None
    world.wait(commit(world, "readers"))
    assert sorted(world.broker.groups.shards.owned) == [0, 1]


def test_shards_replay_their_partition_at_the_next_start() -> None:
    world = a_node()
    world.wait(commit(world, "readers"))
    world.crash()
    world.start()
    committed = world.broker.groups.fetch_offsets("readers", {"orders": [0]})
    assert committed["orders"][0].offset == 7


def test_calls_that_wait_are_refused_when_leadership_goes() -> None:
    world = a_node()
    identity = begin(world)
    waiting = [
        outcome_of(commit(world, "readers")),
        outcome_of(world.broker.transactions.end("shop", identity, is_commit=True)),
    ]
    resign_all(world, OFFSETS_TOPIC)
    resign_all(world, TRANSACTION_TOPIC)
    assert waiting == [[NotCoordinator], [NotCoordinator]]


def test_a_closed_shard_acts_no_more() -> None:
    world = a_node()
    identity = begin(world)
    [shard] = [one for one in world.broker.transactions.shards if len(one.machine)]
    resign_all(world, TRANSACTION_TOPIC)
    before = world.broker.topics.get(TRANSACTION_TOPIC).partitions
    ends = [partition.end_offset for partition in before]
    shard.ask(lambda one, **at: one.abort("shop", identity=identity, **at))
    world.run_for(120_000)  # beyond the timeout of the transaction
    assert [partition.end_offset for partition in before] == ends


def test_without_its_shard_a_key_is_looked_for_elsewhere() -> None:
    world = a_node()
    world.wait(commit(world, "readers"))
    resign_all(world, OFFSETS_TOPIC)
    shards = world.broker.groups.shards
    assert not shards.is_here("readers")
    with pytest.raises(NotCoordinator, match="coordinates this group now; find it again"):
        shards.find("readers")


def test_an_error_inside_a_call_rejects_its_promise() -> None:
    world = a_node()

    def refuse(_: object) -> Promise[None]:
        raise GoQueueError("no")

    assert outcome_of(world.broker.groups.shards.call("readers", refuse)) == [GoQueueError]
