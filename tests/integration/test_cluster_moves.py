"""Moving partitions between real nodes at a given pace, beside writers who notice nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from goqueue.client.http import Client, MovingPartition
from goqueue.model.errors import QuorumAtRisk, UnknownNode

from .cluster import Cluster
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)

MESSAGE_BYTES = 20_000
MESSAGES = 400
RATE = 50_000  # the move would take minutes, however slow this machine is
SLACK = RATE  # a batch, and what a throttle saves up


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("moves"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def api(cluster: Cluster) -> Client:
    return Client(cluster.nodes[1].http.removeprefix("http://"))


def produce(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    """Write with acks=all; every message must be acknowledged."""
    failed: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1}
    producer = Producer(settings)
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def test_a_move_keeps_to_its_throttle_and_writers_go_on(cluster: Cluster) -> None:
    topic = NewTopic("heavy", num_partitions=1, replica_assignment=[[1, 2]])
    cluster.admin.create_topics([topic])["heavy"].result(30)
    cluster.until_in_sync("heavy")
    produce(cluster, "heavy", [os.urandom(MESSAGE_BYTES) for _ in range(MESSAGES)])
    words = (
        "cluster",
        "reassign",
        "heavy",
        "--replicas",
        "1,3",
        "--throttle",
        f"{RATE}",
        "--detach",
    )
    assert [one["outcome"] for one in cluster.cli(*words)] == ["started"]
    with api(cluster) as client:

        def look() -> MovingPartition:
            [move] = client.cluster.reassignments()
            return move

        def copied() -> int:
            return next((one.bytes for one in look().copies if one.node == 3), 0)

        eventually(lambda: copied() > 0, because="the copy has begun")
        began, before = time.monotonic(), copied()
        produce(cluster, "heavy", [b"live"] * 200)
        eventually(lambda: copied() > before + 2 * RATE, because="it goes on")
        # A machine that is slow makes this only slower.
        after, took = copied(), time.monotonic() - began
        assert after - before <= RATE * took + SLACK
        seen = look()
        assert seen.in_sync == [1, 2]
        assert seen.throttle_bytes_per_second == RATE
        assert 0 < seen.bytes_left <= MESSAGES * (MESSAGE_BYTES + 200)
        assert 0 < seen.bytes_per_second <= 2 * RATE
        assert seen.remaining_ms
        [shown] = cluster.cli("cluster", "reassign", "--status")
        assert (shown["to"], shown["throttle_bytes_per_second"]) == ([1, 3], RATE)
        [changed] = cluster.cli("cluster", "reassign", "--throttle", "none")
        assert changed["outcome"] == "without limit"
        eventually(lambda: not client.cluster.reassignments(), because="without a limit it ends")
        [placed] = client.cluster.partitions(topic="heavy")
        assert (placed.replicas, sorted(placed.in_sync)) == ([1, 3], [1, 3])


def test_kafka_tools_throttle_nodes(cluster: Cluster) -> None:
    name = "leader.replication.throttled.rate"

    def change(value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        cluster.admin.incremental_alter_configs([resource])[resource].result(20)

    def known() -> str | None:
        resource = ConfigResource(ResourceType.BROKER, "1")
        found = cluster.admin.describe_configs([resource])[resource].result(20)
        return found[name].value if name in found else None

    change("2000000", AlterConfigOpType.SET)
    eventually(lambda: known() == "2000000", because="the node knows its throttle")
    change(None, AlterConfigOpType.DELETE)
    eventually(lambda: known() is None, because="it is taken back")


def test_voters_are_listed_and_changed_with_care(cluster: Cluster) -> None:
    listed = cluster.cli("cluster", "voters")
    assert [(one["id"], one["votes"], one["running"]) for one in listed] == [
        (1, True, True),
        (2, True, True),
        (3, True, True),
    ]
    assert sorted(one["role"] for one in listed) == ["controller", "voter", "voter"]
    assert "promoted again at once" in cluster.cli("cluster", "voters", "remove", "2", code=1)
    with api(cluster) as client:
        with pytest.raises(UnknownNode, match="No node 77 is registered"):
            client.cluster.add_voter(77)
        cluster.nodes[3].kill()
        eventually(
            lambda: not client.cluster.voters().voters[2].running, because="a node is missed"
        )
        # With one of two voters running, nothing could be decided, not even this.
        with pytest.raises(QuorumAtRisk, match="Start or remove first: 3"):
            client.cluster.remove_voter(1)
        left = client.cluster.remove_voter(3)
        assert [one.voter for one in left.voters] == [True, True, False]
        assert left.majority == 2
        cluster.nodes[3].start()
        eventually(
            lambda: all(one.voter for one in client.cluster.voters().voters),
            because="three are better than two, so it votes again",
        )
