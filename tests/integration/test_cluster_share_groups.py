"""Share groups over three real nodes, whose leaders and owners are killed.

Nothing that was answered is lost: a record that was stored ends accepted, an acceptance that was
confirmed is final, and no record is delivered to two members at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from goqueue.client.http import Client
from goqueue.wire.kafka.messages.metadata import MetadataRequest
from tests.judge.asking import Asking
from tests.judge.share_cases import Member

from .cluster import Cluster
from .sharing import Workers, configure, fill
from .waiting import eventually

TOPIC = "work"
GROUP = "workers"
PARTITIONS = 6
MESSAGES = 3_000
KILLS = 2
WAIT_MS = 20_000
LOCK_MS = "15000"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    # With one partition of delivery state its leader owns every group.
    cluster = Cluster(tmp_path, settings={"delivery.partitions": 1})
    try:
        cluster.start()
        wanted = NewTopic(TOPIC, PARTITIONS, replication_factor=3)
        for future in cluster.admin.create_topics([wanted]).values():
            future.result(timeout=30)
        cluster.until_in_sync(TOPIC)
        configure(
            cluster.bootstrap,
            GROUP,
            share_auto_offset_reset="earliest",
            share_record_lock_duration_ms=LOCK_MS,
            share_delivery_count_limit="100",
        )
        yield cluster
    finally:
        cluster.close()


def test_members_read_from_the_leaders_of_all_partitions(cluster: Cluster) -> None:
    values = [str(number) for number in range(MESSAGES)]
    with Workers(cluster.bootstrap, GROUP, TOPIC, count=3) as workers:
        fill(cluster.bootstrap, TOPIC, values, partitions=PARTITIONS)
        eventually(lambda: len(workers.books.settled) == len(values))
    assert set(workers.books.deliveries.values()) == {1}
    assert set(workers.books.settled.values()) == {1}


class Pipelining(Asking):
    """A client that sends a request behind each fetch."""

    def __call__(self, name: str, request: Any, version: int | None = None) -> Any:
        sent = [self.send(name, request, version)]
        if name == "ShareFetch":
            sent.append(self.send("Metadata", MetadataRequest(topics=[])))
        answer, *_ = [self.take(*one) for one in sent]
        return answer


def test_a_fetch_gives_way_to_requests_behind_it_wherever_its_group_is(cluster: Cluster) -> None:
    leaders = [cluster.leader_of(TOPIC, number) for number in range(PARTITIONS)]
    for node in set(leaders):
        led = [number for number, leader in enumerate(leaders) if leader == node]
        with Pipelining(cluster.nodes[node].bootstrap) as ask:
            member = Member(ask, GROUP, TOPIC, f"member-{node}")
            assert member.fetch(0, partitions=led).error_code == 0
            started = time.monotonic()
            assert member.fetch(1, partitions=(), max_wait_ms=WAIT_MS).error_code == 0
            assert time.monotonic() < started + WAIT_MS / 2000
            fill(cluster.bootstrap, TOPIC, ["a"] * PARTITIONS, partitions=PARTITIONS)
            member.epoch = 2
            assert member.read(partitions=())


def is_done(cluster: Cluster) -> bool:
    """Whether the group has nothing left, by its owner."""
    with Client(next(iter(cluster.nodes.values())).http) as client:
        stats = client.queue(TOPIC, group=GROUP).stats()
    return not (stats.ready or stats.in_flight or stats.retrying or stats.dead_lettering)


@pytest.mark.parametrize("role", ["owner", "leader"])
def test_nothing_is_lost_when_nodes_are_killed(cluster: Cluster, role: str) -> None:
    values = [str(number) for number in range(MESSAGES)]
    with Workers(cluster.bootstrap, GROUP, TOPIC, count=3) as workers:
        for round_number in range(KILLS):
            part = values[round_number :: KILLS + 1]
            fill(cluster.bootstrap, TOPIC, part, partitions=PARTITIONS)
            topic = "__delivery" if role == "owner" else TOPIC
            node = cluster.nodes[cluster.leader_of(topic)]
            node.kill()
            node.start()
            cluster.until_in_sync(TOPIC)
        fill(cluster.bootstrap, TOPIC, values[KILLS :: KILLS + 1], partitions=PARTITIONS)
        books = workers.books
        # An answer may be lost with a node that has accepted the records before.
        eventually(
            lambda: {*books.settled, *books.unanswered} == set(values) and is_done(cluster),
            because="every record is accepted",
            within=120,
        )
    assert books.wrong == []
