"""One queue for consumers of Kafka's share groups, HTTP, SQS and gRPC, on three nodes.

Consumers of every kind, the owner of the group and leaders of partitions are killed while the queue
is drained. Every message is acknowledged exactly once: consumers have confirmations, or were killed
before they could print them, and the journal of journeys has one acknowledgement of each message.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from bench.peers import PeerUnavailable
from goqueue.client.http import Client
from goqueue.model.errors import GoQueueError
from goqueue.tracing.encoding import decode_events, decode_key, is_events
from goqueue.tracing.events import Kind
from tests.integration.cluster import Cluster, ClusterBroker
from tests.integration.ports import quiet_port
from tests.integration.sqs import connect
from tests.integration.test_journeys import Log
from tests.integration.waiting import eventually
from tests.judge.share_clients import CLIENTS

from .draining import Command, Drain, Feed, python_worker

QUEUE = "work"
PARTITIONS = 6
LOCK_SECONDS = 10
JOURNAL = "__journeys"
DRAIN_SECONDS_MAX = 240.0
WITH_TOOLS = "GOQUEUE_TEST_TOOLS" in os.environ
MESSAGES, KILLS = (100_000, 4) if WITH_TOOLS else (2_000, 2)

pytestmark = [
    pytest.mark.timeout(1_800 if WITH_TOOLS else 300),
    pytest.mark.single_node("starts a cluster by itself"),
]


class GrpcNode(ClusterBroker):
    """A node of a cluster that also serves gRPC, always at the same address."""

    def launch(self) -> None:
        self.settings.setdefault("listeners.grpc", f"127.0.0.1:{quiet_port()}")
        super().launch()


class GrpcCluster(Cluster):
    kind = GrpcNode


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    # With one partition of delivery state its leader owns every group.
    settings = {"delivery.partitions": 1, "journeys.partitions": 1, "cluster.replication_factor": 3}
    cluster = GrpcCluster(tmp_path, settings=settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def create_queue(cluster: Cluster) -> None:
    wanted = NewTopic(QUEUE, PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"})
    for future in cluster.admin.create_topics([wanted]).values():
        future.result(timeout=30)
    cluster.until_in_sync(QUEUE)
    client = connect(cluster.nodes[1].sqs, attempts_max=8)
    client.create_queue(QueueName=QUEUE, Attributes={"VisibilityTimeout": str(LOCK_SECONDS)})


def commands(cluster: Cluster) -> dict[str, Command]:
    """The consumers: one of each kind, and with tools also those of Java and Go."""
    nodes = list(cluster.nodes.values())
    addresses = {
        "share": cluster.bootstrap,
        "http": ",".join(one.http for one in nodes),
        "sqs": ",".join(one.sqs for one in nodes),
        "grpc": ",".join(one.grpc for one in nodes),
    }
    found: dict[str, Command] = {
        kind: python_worker(kind, address, QUEUE) for kind, address in addresses.items()
    }
    for name, command in CLIENTS.items() if WITH_TOOLS else ():
        try:
            found[name] = [*command(), cluster.bootstrap, QUEUE, QUEUE, "drain"]
        except PeerUnavailable as missing:
            pytest.skip(str(missing))
    return found


def is_drained(cluster: Cluster) -> bool:
    """Whether no message waits or is with a consumer."""
    for node in cluster.nodes.values():
        try:
            with Client(node.http) as client:
                stats = client.queue(QUEUE, group=QUEUE).stats()
        except GoQueueError:
            continue
        return not (stats.ready or stats.in_flight or stats.retrying or stats.dead_lettering)
    return False


def journal(cluster: Cluster, kind: Kind) -> Counter[tuple[int, int]]:
    """How often each message of the queue has an event, by partition and offset."""
    found: Counter[tuple[int, int]] = Counter()
    for record in Log(cluster.nodes[1]).read(JOURNAL):
        key, value = record.key(), record.value()
        if not is_events(key):
            continue
        place, _, _ = decode_key(key)
        _, events = decode_events(place, value)
        found.update(
            (place.partition, offset)
            for event in events
            if place.topic == QUEUE and event.kind is kind
            for offset in range(event.first, event.end)
        )
    return found


def test_every_message_is_settled_once_whichever_protocol_its_consumer_speaks(
    cluster: Cluster,
) -> None:
    create_queue(cluster)
    with Drain(commands(cluster)) as drain:
        reports, kinds = drain.reports, cycle(drain.kinds)
        feed = Feed(cluster.bootstrap, QUEUE, reports, count=MESSAGES, partitions=PARTITIONS)
        with feed:
            for round_number in range(KILLS):
                for _ in range(-(-len(drain.kinds) // KILLS)):
                    drain.kill(next(kinds))
                topic = QUEUE if round_number % 2 else "__delivery"
                node = cluster.nodes[cluster.leader_of(topic)]
                node.kill()
                node.start()
                cluster.until_in_sync(QUEUE)
        sent = set(range(feed.produced))
        eventually(
            lambda: len(reports.received) == len(sent) and is_drained(cluster),
            because="the queue is drained",
            within=DRAIN_SECONDS_MAX,
        )
    assert reports.wrong == []
    assert set(reports.received) == sent
    # A consumer that was killed, or got no answer, cannot say what became of its messages.
    unconfirmed = sent - set(reports.settled)
    assert len(unconfirmed) <= len(sent) // 10
    assert set(reports.by_kind) == set(drain.kinds)
    acked = eventually(
        lambda: (found := journal(cluster, Kind.ACKED)) and len(found) >= len(sent) and found,
        because="every message has its acknowledgement in the journal",
    )
    assert len(acked) == len(sent)
    assert set(acked.values()) == {1}
    assert not journal(cluster, Kind.DEAD_LETTERED)
    sys.stdout.write(
        f"{len(sent)} messages, {len(unconfirmed)} of which were settled by consumers that could "
        f"not say so; confirmed: {dict(reports.by_kind)}; failures: {dict(reports.failures)}\n"
    )
