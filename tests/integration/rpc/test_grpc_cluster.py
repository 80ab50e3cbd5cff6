"""Streams over three nodes, whose leaders and owners are killed in the middle of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import group_service_pb2 as groups
from tests.integration.cluster import Cluster
from tests.integration.waiting import eventually

from .calls import LISTENER, Rpc
from .streaming import Position, Publisher, Worker

pytestmark = [pytest.mark.timeout(300), pytest.mark.single_node("starts a cluster by itself")]

MESSAGES = 2_000
ROUND = 400  # of one stream


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {
        "delivery.partitions": 1,  # its leader owns every group
        "cluster.replication_factor": 3,
        **LISTENER,
    }
    cluster = Cluster(tmp_path, settings=settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def addresses(cluster: Cluster) -> list[str]:
    """Of the nodes that are up, as their files say, which are gone while a node starts."""
    found = []
    for node in cluster.nodes.values():
        try:
            found.append(node.grpc)
        except (FileNotFoundError, ValueError, KeyError):
            continue
    return found


def stored(rpc: Rpc, topic: str) -> dict[Position, bytes]:
    """All messages of a topic, by their place."""
    found: dict[Position, bytes] = {}
    begin = {"from": consuming.Position(start=consuming.START_EARLIEST)}
    request = consuming.ReadRequest(topic=topic, messages_max=1000, **begin)
    while page := rpc.call(rpc.consuming.Read, request):
        if not page.messages:
            return found
        found.update({(one.partition, one.offset): one.value for one in page.messages})
        request = consuming.ReadRequest(topic=topic, messages_max=1000, cursor=page.cursor)
    return found


@pytest.mark.parametrize("role", ["leader", "owner"])
def test_nothing_that_was_confirmed_is_lost_or_settled_twice(
    cluster: Cluster, name: str, role: str
) -> None:
    with Rpc(cluster.nodes[2].grpc) as rpc:
        rpc.create(name, partitions=3)
        settings = {"visibility_ms": "5000", "deliveries_max": "0"}
        rpc.call(
            rpc.groups.PutQueueGroup, groups.PutQueueGroupRequest(group=name, settings=settings)
        )
    cluster.until_in_sync(name)
    known = lambda: addresses(cluster)  # noqa: E731
    workers = [Worker(known, turn, name) for turn in range(3)]
    for one in workers:
        one.start()
    publisher = Publisher(known, name)
    values: list[bytes] = []
    is_over = threading.Event()

    def publish() -> None:
        """Publish before, during and after the failure."""
        while not is_over.is_set() or len(values) < MESSAGES:
            more = [b"%d" % number for number in range(len(values), len(values) + ROUND)]
            values.extend(more)
            publisher.publish(more)

    publishing = threading.Thread(target=publish, daemon=True)
    publishing.start()
    eventually(lambda: sum(one.accepted.total() for one in workers) > 100, because="it flows")
    topic = name if role == "leader" else "__delivery"
    node = cluster.nodes[cluster.leader_of(topic)]
    node.kill()
    node.start()
    cluster.until_in_sync(name)
    is_over.set()
    publishing.join(120)
    assert not publishing.is_alive()
    with Rpc(cluster.nodes[1].grpc) as rpc:
        kept = stored(rpc, name)
        request = groups.GetQueueStatsRequest(group=name, topic=name)

        def is_drained() -> bool:
            stats = rpc.call(rpc.groups.GetQueueStats, request)
            return not (stats.ready or stats.in_flight or stats.retrying)

        eventually(is_drained, because="everything is settled", within=90)
    for one in workers:
        one.stop()
    for one in workers:
        one.join(60)
        assert not one.is_alive()
        assert one.failures == []
    assert len(publisher.confirmed) == len(values)
    assert {place: kept.get(place) for place in publisher.confirmed.values()} == {
        place: value for value, place in publisher.confirmed.items()
    }, "what was confirmed is stored where the confirmation says"
    accepted: Counter[Position] = Counter()
    for one in workers:
        accepted.update(one.accepted)
    assert max(accepted.values()) == 1
    uncertain = set().union(*(one.uncertain for one in workers))
    assert set(kept) <= set(accepted) | uncertain
    assert set(accepted) <= set(kept)


def test_any_node_can_be_asked_for_anything(cluster: Cluster, name: str) -> None:
    clients = [Rpc(node.grpc) for node in cluster.nodes.values()]
    clients[0].create(name, partitions=3)
    for number, rpc in enumerate(clients):
        rpc.publish(name, b"%d" % number)
    received = []
    for rpc in clients:
        [message] = rpc.pull(name, name, count=1, wait_ms=20_000)
        received.append(message.value)
        other = clients[(clients.index(rpc) + 1) % 3]
        request = consuming.PullRequest(
            group=name, topic=name, ack=[message.receipt], messages_max=1, wait_ms=0
        )
        answer = other.call(other.consuming.Pull, request)
        assert not answer.errors
        received += [one.value for one in answer.messages]
        if len(received) >= 3:
            break
    assert set(received) == {b"0", b"1", b"2"}
    for rpc in clients:
        rpc.close()
