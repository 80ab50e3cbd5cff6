"""Transactions over three real nodes with stock clients, while coordinators and leaders die."""

from __future__ import annotations

import logging
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewTopic

from .cluster import Cluster, ClusterBroker
from .test_transaction_crashes import SOURCE, SOURCE_PARTITIONS, TARGET, Campaign, copies
from .transacting import READ_COMMITTED, SENTINEL, Write, put, read_confluent, transactional
from .transformer import TARGET_PARTITIONS
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)

STATES, OFFSETS = "__transaction_state", "__consumer_offsets"
TOPICS = ("orders", "bills")
PARTITIONS = 3
CALL_SECONDS = 60
CRASHES = 4

_log = logging.getLogger(__name__)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, settings={"groups.session_ms_min": 1_000})
    try:
        cluster.start()
        for topic in (STATES, OFFSETS):
            until_everywhere(cluster, topic)
        yield cluster
    finally:
        cluster.close()


def until_everywhere(cluster: Cluster, topic: str) -> None:
    """Wait until every node has a copy. The first nodes that meet make the internal topics."""

    def is_everywhere() -> bool:
        partitions = cluster.admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
        return all(len(one.isrs) == len(cluster.nodes) for one in partitions)

    eventually(is_everywhere, because=f"every node has a copy of {topic}")


def create(cluster: Cluster, topic: str, *, partitions: int) -> None:
    wanted = NewTopic(
        topic,
        num_partitions=partitions,
        replication_factor=3,
        config={"min.insync.replicas": "2"},
    )
    for future in cluster.admin.create_topics([wanted]).values():
        future.result(timeout=30)
    cluster.until_in_sync(topic)


class Till:
    """Writes one transaction after the other to all partitions, and ends each as it likes."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            producer = transactional(
                self._cluster.bootstrap, self.transactional_id, transaction_timeout_ms=60_000
            )
            number = 0
            while not self._stop.is_set():
                self._transact(producer, number)
                number += 1
        except BaseException as error:
            self.failure = error

    def _transact(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        value = f"{self.transactional_id}:{number}".encode()
        put(
            producer,
            [Write(topic, value, one) for topic in TOPICS for one in range(PARTITIONS)],
        )
        is_commit = number % 3 != 2
        while True:
            try:
                if is_commit:
                    producer.commit_transaction(CALL_SECONDS)
                else:
                    producer.abort_transaction(CALL_SECONDS)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        (self.committed if is_commit else self.aborted).append(number)

    def until_committed(self, count: int) -> None:
        """Wait until so many more are committed."""
        target = len(self.committed) + count
        eventually(
            lambda: self.failure is not None or len(self.committed) >= target,
            because=f"{self.transactional_id} commits {count} more",
        )
        assert self.failure is None, self.failure

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(CALL_SECONDS)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure


def shown(cluster: Cluster) -> dict[tuple[str, int], Counter[bytes]]:
    """What readers of committed records find in each partition."""
    producer = transactional(cluster.bootstrap, "the-end")
    producer.begin_transaction()
    places = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    put(producer, [Write(topic, SENTINEL, number) for topic, number in places])
    producer.commit_transaction(CALL_SECONDS)
    found = {}
    for topic, number in places:
        values = read_confluent(cluster.bootstrap, topic, number, READ_COMMITTED)
        found[topic, number] = Counter(value for value in values if value != SENTINEL)
    return found


def test_whole_transactions_and_no_others_are_seen_whoever_is_killed(cluster: Cluster) -> None:
    for topic in TOPICS:
        create(cluster, topic, partitions=PARTITIONS)
    tills = [Till(cluster, f"till-{number}") for number in range(2)]
    for till in tills:
        till.until_committed(3)
    state = zlib.crc32(tills[0].transactional_id.encode()) % PARTITIONS
    for topic, number in ((STATES, state), ("orders", 0), (STATES, state), ("bills", 1)):
        victim = cluster.nodes[cluster.leader_of(topic, number)]
        victim.kill()
        for till in tills:
            till.until_committed(3)
        victim.start()
        for name in (*TOPICS, STATES):
            cluster.until_in_sync(name)
    for till in tills:
        till.finish()
    expected = Counter(
        f"{till.transactional_id}:{number}".encode() for till in tills for number in till.committed
    )
    assert all(till.aborted for till in tills)
    for place, values in shown(cluster).items():
        assert values == expected, f"{place} shows other transactions than were committed"


class AnyNode:
    """The cluster as something that is killed and started like one node: each time another."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._victim: ClusterBroker | None = None
        self.bootstrap = cluster.bootstrap

    def kill(self) -> None:
        self._victim = self._random.choice(list(self._cluster.nodes.values()))
        self._victim.kill()

    def start(self) -> None:
        assert self._victim is not None
        time.sleep(self._random.uniform(0, 3))  # how long a node is away is part of the trouble
        self._victim.start()
        for topic in (SOURCE, TARGET, STATES, OFFSETS):
            self._cluster.until_in_sync(topic)

    @property
    def log_text(self) -> str:
        return "\n".join(node.log_text[-4000:] for node in self._cluster.nodes.values())


def test_every_message_is_copied_exactly_once_whichever_node_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    create(cluster, SOURCE, partitions=SOURCE_PARTITIONS)
    create(cluster, TARGET, partitions=TARGET_PARTITIONS)
    node = AnyNode(cluster, seed=1)
    output = tmp_path / "transformers"
    campaign = Campaign(node, 1, output)  # type: ignore[arg-type]
    try:
        sent = campaign.run(CRASHES)
        found = copies(node, campaign.children)  # type: ignore[arg-type]
    except BaseException:
        _log.error("transformers said:\n%s", output.read_text()[-4000:])
        _log.error("the nodes said:\n%s", node.log_text)
        raise
    assert campaign.node_kills >= 1
    assert sent > 100
    assert [number for number, count in found.items() if count > 1] == []
    assert sorted(found) == list(range(sent))
