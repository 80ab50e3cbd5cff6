"""Consumers that name their rack read from the replica there, and lose nothing by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from goqueue.wire.kafka.messages import describe_cluster, fetch, metadata
from tests.judge.asking import Asking

from .cluster import Cluster
from .transacting import SECONDS_MAX, transactional
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)

NOT_LEADER, OUT_OF_RANGE = 6, 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("racks"))
    for number, node in cluster.nodes.items():
        node.settings["cluster.rack"] = f"r{number}"
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def create(cluster: Cluster, topic: str) -> tuple[int, int]:
    """A topic of one partition; its leader and a follower that is in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result()

    def settled() -> tuple[int, int] | None:
        with Asking(cluster.nodes[1].bootstrap) as ask:
            wanted = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])
            (found,) = ask("Metadata", wanted, 8).topics[0].partitions or [None]
        if found is None or found.leader_id < 0 or len(found.isr_nodes) < 3:
            return None
        return found.leader_id, next(one for one in found.isr_nodes if one != found.leader_id)

    return eventually(settled, because="all three copies are in sync")


def ask_for(cluster: Cluster, node: int, topic: str, rack: str, **place: Any) -> Any:
    version = place.pop("version", 12)
    partition = fetch.FetchPartition(
        partition=0, fetch_offset=place.pop("offset", 0), partition_max_bytes=1 << 20
    )
    request = fetch.FetchRequest(
        max_wait_ms=200,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[fetch.FetchTopic(topic=topic, partitions=[partition])],
        rack_id=rack if version >= 11 else "",
    )
    with Asking(cluster.nodes[node].bootstrap) as ask:
        return ask("Fetch", request, version).responses[0].partitions[0]


def test_racks_are_told(cluster: Cluster) -> None:
    with Asking(cluster.nodes[1].bootstrap) as ask:
        answer = ask("DescribeCluster", describe_cluster.DescribeClusterRequest())
    assert {one.broker_id: one.rack for one in answer.brokers} == {1: "r1", 2: "r2", 3: "r3"}


def test_the_leader_sends_a_consumer_to_its_rack_and_the_follower_serves_it(
    cluster: Cluster,
) -> None:
    leader, follower = create(cluster, "near")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce("near", b"one", partition=0)
    producer.flush(SECONDS_MAX)
    there = ask_for(cluster, leader, "near", f"r{follower}")
    assert (there.preferred_read_replica, there.records or b"") == (follower, b"")
    for rack in ("", f"r{leader}", "nowhere"):
        here = ask_for(cluster, leader, "near", rack)
        assert (here.preferred_read_replica, bool(here.records)) == (-1, True), rack

    def served() -> bool:
        return bool(ask_for(cluster, follower, "near", f"r{follower}").records)

    eventually(served, because="the follower learns that the record is committed")
    assert ask_for(cluster, follower, "near", "", version=10).error_code == NOT_LEADER
    far = ask_for(cluster, follower, "near", f"r{follower}", offset=100)
    assert far.error_code == OUT_OF_RANGE
    at_end = ask_for(cluster, follower, "near", f"r{follower}", offset=1)
    assert (at_end.error_code, at_end.records or b"") == (0, b"")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_stock_consumer_reads_everything_from_the_follower(
    cluster: Cluster, isolation: str
) -> None:
    topic = f"stock-{isolation}"
    _, follower = create(cluster, topic)
    producer = transactional(cluster.bootstrap, topic)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{turn}/{number}".encode(), partition=0)
        producer.flush(SECONDS_MAX)
        if turn % 2:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
    sources: list[int] = []

    def note(text: str) -> None:
        for one in json.loads(text)["topics"].get(topic, {}).get("partitions", {}).values():
            sources.append(one["broker"])

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "client.rack": f"r{follower}",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 200,
            "stats_cb": note,
        }
    )
    turns = (0, 2) if isolation == "read_committed" else (0, 1, 2, 3)
    expected = [f"{turn}/{number}".encode() for turn in turns for number in range(10)]
    seen: list[bytes] = []
    try:
        consumer.subscribe([topic])

        def all_seen() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.append(message.value())
            return len(seen) >= len(expected) and follower in sources

        eventually(all_seen, because="all is read, from the follower")
    finally:
        consumer.close()
    assert seen == expected


def test_a_consumer_goes_on_when_its_replica_is_gone(cluster: Cluster) -> None:
    leader, follower = create(cluster, "lost")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "lost",
            "client.rack": f"r{follower}",
            "auto.offset.reset": "earliest",
        }
    )
    seen: list[bytes] = []

    def read(count: int) -> None:
        def done() -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.append(message.value())
            return len(seen) >= count

        eventually(done, because="the consumer goes on")

    try:
        consumer.subscribe(["lost"])
        producer.produce("lost", b"0", partition=0)
        producer.flush(SECONDS_MAX)
        read(1)
        cluster.nodes[follower].kill()
        producer.produce("lost", b"1", partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        read(2)
    finally:
        consumer.close()
        cluster.nodes[follower].start()
    assert seen == [b"0", b"1"]
    assert leader != follower
