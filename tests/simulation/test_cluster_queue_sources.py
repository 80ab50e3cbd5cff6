"""Queues whose messages change places: copies come to their owner, and leaders come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.records import Source
from goqueue.broker.queues.remote_partitions import RemoteCopy
from goqueue.broker.topics.topics import Topic
from goqueue.loop.peers import Answer, PeerKind
from goqueue.loop.promise import Promise
from goqueue.model.errors import GoQueueError
from tests.simulation.cluster_queues import TOPIC, begin, begin_far_away
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.test_cluster_remote_queues import ack, owner, receive, send, values_of

TAKEN_MS = 20_000


def hosted_by(node: ClusterNode) -> HostedQueue:
    topic = node.broker.topics.get(TOPIC)
    return node.broker.queues._hosts.groups["one"].queues[topic.name]


def known_of(node: ClusterNode) -> int:
    """How many messages of the first partition the queue knows of."""
    return hosted_by(node).queue.partitions[0].high_watermark


def source_of(node: ClusterNode) -> Source:
    """What its records are read from."""
    return hosted_by(node).sources[0]


def take_all(world: ClusterWorld, node: ClusterNode) -> list[str]:
    """All that there is to receive; whoever is told to retry does so."""
    got: list[str] = []
    deadline_ms = world.age_ms + TAKEN_MS
    while True:
        try:
            some = receive(world, node, wait_ms=1_000)
        except GoQueueError as error:
            if not error.retryable or world.age_ms > deadline_ms:
                raise
            world.run_for(100)
            continue
        if not some:
            return got
        got += values_of(some)
        ack(world, node, some)


def test_a_queue_reads_on_where_it_did_until_a_new_copy_knows_as_much() -> None:
    world = begin_far_away(1, replication__fetch_bytes_max="1KiB")
    node = owner(world)
    sent = [f"{number:0400}" for number in range(30)]
    send(world, sent[0])
    first = receive(world, node, 1, wait_ms=1_000)
    send(world, *sent[1:])
    world.run_until(lambda: known_of(node) == 30)
    topic: Topic = node.broker.topics.get(TOPIC)
    others = [number for number in world.nodes if number != node.number]
    node.broker.administration.reassign(topic, 0, (node.number, *others[:2]))
    world.run_until(lambda: node.broker.topics.keeps(topic.partition(0)))
    world.run_until(lambda: topic.partition(0).high_watermark > 10)
    assert topic.partition(0).high_watermark < 30
    assert isinstance(source_of(node), RemoteCopy)
    assert known_of(node) == 30
    ack(world, node, first)
    assert sorted(take_all(world, node), key=int) == sent[1:]
    world.run_until(lambda: source_of(node) is topic.partition(0))


def rot(node: ClusterNode, *, batch: int) -> None:
    """A bit of one batch of the first partition, by its number, flips on a node's disk."""
    partition = node.partition(TOPIC)
    assert partition is not None
    segment, place = list(partition.log.located(0))[batch]
    node.is_rotten = True
    node.disk.flip_bit(segment.file.path, 8 * place.end - 1)
    partition.log.distrust(0)  # It was written by an earlier process, say.


@pytest.mark.parametrize("is_leader", [False, True])
def test_what_has_rotted_at_the_owner_alone_is_delivered(is_leader: bool) -> None:
    world = begin(10)
    node = owner(world)
    topic = node.broker.topics.get(TOPIC)
    others = [number for number in world.nodes if number != node.number]
    replicas = (node.number, *others) if is_leader else (*others, node.number)
    world.wait(node.broker.administration.reassign(topic, 0, replicas))
    world.run_until(lambda: world.leader_of(TOPIC) is world.nodes[replicas[0]], ms_max=400_000)
    sent = [str(number) for number in range(6)]
    send(world, *sent)
    world.run_until(world.is_whole)
    rot(node, batch=2)
    assert sorted(take_all(world, node)) == sent


@pytest.mark.parametrize("batch", [0, 2])
def test_what_has_rotted_at_the_leader_alone_is_delivered_elsewhere(batch: int) -> None:
    world = begin_far_away(11)
    node, leader = owner(world), world.leader_of(TOPIC)
    assert leader is not None
    sent = [str(number) for number in range(6)]
    send(world, *sent)
    world.run_until(world.is_whole)
    rot(leader, batch=batch)
    assert sorted(take_all(world, node)) == sent


def test_what_a_former_leader_could_not_read_is_had_from_the_next() -> None:
    """Its answer comes when another leads already, who has all of it."""
    world = begin_far_away(12)
    node, leader = owner(world), world.leader_of(TOPIC)
    assert leader is not None
    receive(world, node, 1)  # so that there is a queue
    held = hold_answers(world, leader, node)
    send(world, "a")
    world.run_until(lambda: known_of(node) == 1)
    rot(leader, batch=0)
    receiver = node.broker.queues.receive("one", TOPIC, consumer="a", wait_ms=60_000)
    world.run_until(lambda: bool(held))
    copy = source_of(node)
    assert isinstance(copy, RemoteCopy)
    world.run_until(lambda: copy.led_by is not None and copy.led_by[0] != leader.number)
    for answer in held:
        answer()
    assert values_of(list(world.wait(receiver.promise))) == ["a"]


def hold_answers(
    world: ClusterWorld, source: ClusterNode, target: ClusterNode
) -> list[Callable[[], None]]:
    """Answers of one node to another about batches, which do not arrive by themselves."""
    held: list[Callable[[], None]] = []
    network, serve = world.network, world.network.nodes[source.number]._handlers
    answer_batches, carry = serve[PeerKind.BATCHES], network.carry
    is_answering = False

    def answer(caller: int, head: bytes, body: memoryview) -> Promise[Answer]:
        nonlocal is_answering
        is_answering = caller == target.number
        return answer_batches(caller, head, body)

    def carry_or_hold(sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        nonlocal is_answering
        if is_answering and (sender, receiver) == (source.number, target.number):
            is_answering = False
            held.append(deliver)
        else:
            carry(sender, receiver, deliver)

    serve[PeerKind.BATCHES] = answer
    network.carry = carry_or_hold  # type: ignore[method-assign]
    return held
