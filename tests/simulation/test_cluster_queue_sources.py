"""Queues whose messages change places: copies come to their owner, and leaders come and go."""

from __future__ import annotations

from goqueue.broker.queue_copies import DistantCopy
from goqueue.broker.queue_host import HostedQueue
from goqueue.broker.queue_records import Source
from goqueue.broker.topics import Topic
from tests.simulation.cluster_queues import TOPIC, begin_far_away
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.test_cluster_queues_afar import ack, owner, receive, send, values_of


def hosted_by(node: ClusterNode) -> HostedQueue:
    topic = node.broker.topics.get(TOPIC)
    return node.broker.queues._hosts.groups["one"].queues[topic.id]


def known_of(node: ClusterNode) -> int:
    """How many messages of the first partition the queue knows of."""
    return hosted_by(node).queue.partitions[0].high_watermark


def source_of(node: ClusterNode) -> Source:
    """What its records are read from."""
    return hosted_by(node).sources[0]


def take_all(world: ClusterWorld, node: ClusterNode) -> list[str]:
    got: list[str] = []
    while some := receive(world, node, wait_ms=1_000):
        got += values_of(some)
        ack(world, node, some)
    return got


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
    assert isinstance(source_of(node), DistantCopy)
    assert known_of(node) == 30
    ack(world, node, first)
    assert sorted(take_all(world, node), key=int) == sent[1:]
    world.run_until(lambda: source_of(node) is topic.partition(0))
