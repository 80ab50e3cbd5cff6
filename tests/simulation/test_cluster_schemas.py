"""Schemas in a cluster: one node takes changes, and all of them know, read and validate."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from goqueue.loop.promise import Promise, start
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, NotCoordinator, RequestTimedOut, SchemaMismatch
from goqueue.schemas.catalog import Version
from goqueue.schemas.drafts import Request
from goqueue.schemas.formats import SchemaKind
from goqueue.schemas.names import read_subject
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

T = TypeVar("T")
SCHEMAS = "__schemas"


def begin(work: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    promise: Promise[T] = Promise()
    start(work, promise.settle)
    return promise


def text(number: int) -> str:
    return f'{{"type": "object", "title": "t{number}"}}'


def register(node: ClusterNode, subject: str, number: int) -> Promise[Version]:
    request = Request(text(number), kind=SchemaKind.JSON)
    return begin(node.broker.schemas.register(read_subject(subject), request))


def leader(world: ClusterWorld) -> ClusterNode:
    found = world.leader_of(SCHEMAS)
    assert found is not None
    return found


def framed(schema_id: int, value: bytes = b"{}") -> Record:
    return Record(None, b"\x00" + schema_id.to_bytes(4, "big") + value)


@pytest.mark.parametrize("node_count", [3, 5])
def test_what_is_registered_at_one_node_is_read_and_validated_at_all(node_count: int) -> None:
    world = ClusterWorld(11, node_count=node_count)
    world.heal()
    world.create("orders", schema_validation="value")
    world.run_until(world.is_whole)
    version = world.wait(register(leader(world), "orders-value", 1))
    # With five nodes two of them keep no copy of the schemas.
    for node in world.up():
        content = node.broker.schemas.schema_by_id(version.content.id)
        assert content is not None, f"node {node.number}"
        assert content.text == version.content.text
        orders = node.broker.topics.get("orders")
        node.broker.validation.check_record(orders, framed(version.content.id))
        with pytest.raises(SchemaMismatch):
            node.broker.validation.check_record(orders, framed(version.content.id, b"[]"))


def test_only_the_leader_takes_changes() -> None:
    world = ClusterWorld(12)
    world.heal()
    for node in world.up():
        if node is not leader(world):
            assert node.broker.schemas.owner() == leader(world).number
            with pytest.raises(NotCoordinator):
                world.wait(register(node, "orders-value", 1))


def test_an_unknown_id_is_refused_when_the_leader_does_not_know_it_either() -> None:
    world = ClusterWorld(13)
    world.heal()
    world.create("orders", schema_validation="value")
    world.run_until(world.is_whole)
    for node in world.up():
        orders = node.broker.topics.get("orders")
        if node is not leader(world):
            with pytest.raises(RequestTimedOut):
                node.broker.validation.check_record(orders, framed(77))
            world.run_for(1_000)
        with pytest.raises(SchemaMismatch):
            node.broker.validation.check_record(orders, framed(77))


def test_a_node_that_is_behind_does_not_refuse_what_the_leader_knows() -> None:
    world = ClusterWorld(14)
    world.heal()
    world.create("orders", schema_validation="value")
    world.run_until(world.is_whole)
    others = [node for node in world.up() if node is not leader(world)]
    world.network.cut([others[0].number], [one for one in world.nodes if one != others[0].number])
    version = world.wait(register(leader(world), "orders-value", 1))
    orders = others[0].broker.topics.get("orders")
    with pytest.raises(RequestTimedOut):
        others[0].broker.validation.check_record(orders, framed(version.content.id))
    world.heal()
    world.run_for(2_000)
    others[0].broker.validation.check_record(orders, framed(version.content.id))


def test_a_node_without_a_copy_does_not_pass_over_what_has_rotted_at_the_leader() -> None:
    world = ClusterWorld(15, node_count=5)
    world.heal()
    told = [world.wait(register(leader(world), f"s{number}", number)) for number in range(6)]
    world.run_until(world.is_whole)
    rotten = leader(world)
    partition = rotten.partition(SCHEMAS)
    assert partition is not None
    segment, place = list(partition.log.located(0))[3]
    rotten.is_rotten = True
    rotten.disk.flip_bit(segment.file.path, 8 * place.end - 1)
    cluster = rotten.broker.cluster
    assert cluster is not None
    fact = cluster.quorum.metadata.partitions.get(rotten.broker.topics.get(SCHEMAS).id, 0)
    assert fact is not None
    outsider = next(node for node in world.up() if node.number not in fact.members)
    outsider.kill()
    outsider.start()
    world.run_until(world.is_whole)

    def knows(version: Version) -> bool:
        try:
            outsider.broker.schemas.check_sure(b"?")
        except RequestTimedOut:
            return False
        return outsider.broker.schemas.schema_by_id(version.content.id) is not None

    for version in reversed(told):
        world.run_until(partial(knows, version))


@pytest.mark.seeds(12)
def test_an_id_never_means_two_schemas(seed: int) -> None:
    world = ClusterWorld(seed, node_count=5 if seed % 4 == 0 else 3)
    world.heal()
    chance = world.random
    told: dict[int, str] = {}  # what clients were told that an id means
    count = 0

    def registered(version: Version | None, error: Exception | None, *, number: int) -> None:
        if version is None:
            assert isinstance(error, GoQueueError), error
        else:
            known = told.setdefault(version.content.id, text(number))
            assert known == text(number), f"seed {seed}: id {version.content.id}"

    for _ in range(12):
        faults = world.network.faults
        faults.loss = chance.choice([0.0, 0.0, 0.1])
        faults.duplication = chance.choice([0.0, 0.1])
        faults.delay_ms = chance.choice([1.0, 20.0])
        victim = chance.choice(list(world.nodes.values()))
        trouble = chance.random()
        if trouble < 0.3 and victim.is_up:
            victim.crash()
        elif trouble < 0.4 and victim.is_up:
            victim.kill()
        elif trouble < 0.55:
            world.network.cut([victim.number], [one for one in world.nodes if one != victim.number])
        elif trouble < 0.75:
            faults.cut.clear()
        if chance.random() < 0.6:
            for node in world.nodes.values():
                if not node.is_up:
                    node.start()
        for _ in range(chance.randint(1, 4)):
            for node in world.up():
                count += 1
                register(node, f"s{chance.randint(0, 5)}-value", count).then(
                    partial(registered, number=count)
                )
            world.run_for(chance.choice([chance.uniform(5, 300), chance.uniform(300, 2_000)]))
            _check_readers(world, told)
    world.heal()
    world.run_for(3_000)
    for node in world.up():
        world.wait(begin(node.broker.schemas.look(lambda registry: None)))
        for schema_id, meant in told.items():
            content = node.broker.schemas.schema_by_id(schema_id)
            if content is None:  # A node without a copy asks when it has to.
                with pytest.raises(RequestTimedOut):
                    node.broker.schemas.check_sure(b"?")
                world.run_for(1_000)
                content = node.broker.schemas.schema_by_id(schema_id)
            assert content is not None, f"seed {seed}: id {schema_id} is lost on {node.number}"
            assert content.text == meant


def _check_readers(world: ClusterWorld, told: dict[int, str]) -> None:
    """What nodes that do not lead say an id means is what a client was told, if one was."""
    for node in world.up():
        cluster = node.broker.cluster
        topic = node.broker.topics.find(SCHEMAS)
        if cluster is None or topic is None or cluster.replicas.leads(topic.id, 0):
            continue
        for schema_id, meant in told.items():
            content = node.broker.schemas.schema_by_id(schema_id)
            assert content is None or content.text == meant, f"seed {world.seed}: {schema_id}"
