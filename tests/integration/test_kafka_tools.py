"""Apache Kafka's own command line tools, against three nodes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.judge.tools import run_tool

from .cluster import Cluster
from .sharing import fill
from .waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        "GOQUEUE_TEST_TOOLS" not in os.environ,
        reason="`make judge-kafka` runs these tools, which Maven fetches",
    ),
]
HEAVY_BYTES = 20_000
HEAVY_MESSAGES = 300
RATE = 50_000  # a move would take minutes, however slow this machine is


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("tools"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def tool(cluster: Cluster, name: str, *arguments: str, given: str = "", code: int = 0) -> str:
    """What a tool prints. Some print their errors and end without an error code."""
    done = run_tool(name, "--bootstrap-server", cluster.bootstrap, *arguments, given=given)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    if not code:
        assert "Exception" not in said, said
    return done.stdout


def make(cluster: Cluster, topic: str, *replicas: int, partitions: int = 1) -> None:
    assignment = [list(replicas or (1, 2, 3))] * partitions
    new = NewTopic(topic, num_partitions=partitions, replica_assignment=assignment)
    cluster.admin.create_topics([new])[topic].result(30)
    cluster.until_in_sync(topic)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_topics(cluster: Cluster) -> None:
    named = ("--topic", "made-by-tool")
    tool(
        cluster,
        "kafka-topics",
        "--create",
        *named,
        "--partitions",
        "2",
        "--config",
        "retention.ms=-1",
    )
    assert "made-by-tool" in tool(cluster, "kafka-topics", "--list").split()
    tool(cluster, "kafka-topics", "--alter", *named, "--partitions", "3")
    described = tool(cluster, "kafka-topics", "--describe", *named)
    assert "PartitionCount: 3" in described
    assert "retention.ms=-1" in described
    assert tool(cluster, "kafka-topics", "--describe", "--under-replicated-partitions") == ""
    tool(cluster, "kafka-topics", "--delete", *named)
    assert "made-by-tool" not in tool(cluster, "kafka-topics", "--list").split()


def test_offsets_and_deleted_records(cluster: Cluster, tmp_path: Path) -> None:
    make(cluster, "counted")
    fill(cluster.bootstrap, "counted", [str(number) for number in range(10)])
    assert "counted:0:10" in tool(cluster, "kafka-get-offsets", "--topic", "counted")
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        json.dumps(
            {"partitions": [{"topic": "counted", "partition": 0, "offset": 4}], "version": 1}
        )
    )
    said = tool(cluster, "kafka-delete-records", "--offset-json-file", str(wanted))
    assert re.search(r"counted-0\s+low_watermark: 4", said), said
    earliest = tool(cluster, "kafka-get-offsets", "--topic", "counted", "--time", "earliest")
    assert "counted:0:4" in earliest


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_consumers(cluster: Cluster, protocol: str) -> None:
    topic, group = f"read-{protocol}", f"readers-{protocol}"
    make(cluster, topic)
    fill(cluster.bootstrap, topic, [str(number) for number in range(10)])
    named = ("--group", group)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "group.protocol": protocol}
    )
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and consumer.assignment())
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert group in tool(cluster, "kafka-consumer-groups", "--list").split()
        found = rows(tool(cluster, "kafka-consumer-groups", "--describe", *named))
        assert [group, topic, "0", "3", "10", "7"] in [row[:6] for row in found], found
        described = ("--describe", "--members", "--verbose", *named)
        assert "Stable" in tool(cluster, "kafka-consumer-groups", "--describe", "--state", *named)
        members = tool(cluster, "kafka-consumer-groups", *described)
        assert f"{topic}(0)" in members or f"{topic}:0" in members, members
    finally:
        consumer.close()
    where = ("--topic", topic, "--to-earliest", "--execute")
    moved = rows(tool(cluster, "kafka-consumer-groups", "--reset-offsets", *named, *where))
    assert [group, topic, "0", "0"] in moved, moved
    tool(cluster, "kafka-consumer-groups", "--delete-offsets", *named, "--topic", topic)
    tool(cluster, "kafka-consumer-groups", "--delete", *named)
    assert group not in tool(cluster, "kafka-consumer-groups", "--list").split()


@pytest.mark.parametrize(
    ("entity", "change"),
    [
        (("--entity-type", "topics", "--entity-name", "configured"), "retention.ms=70000"),
        (("--entity-type", "brokers", "--entity-name", "2"), "log.retention.ms=80000"),
        (("--entity-type", "brokers", "--entity-default"), "log.segment.bytes=90000000"),
        (("--entity-type", "groups", "--entity-name", "g"), "consumer.session.timeout.ms=50000"),
    ],
)
def test_settings(cluster: Cluster, entity: tuple[str, ...], change: str) -> None:
    if "configured" in entity:
        make(cluster, "configured")
    name = change.partition("=")[0]
    tool(cluster, "kafka-configs", *entity, "--alter", "--add-config", change)
    eventually(lambda: change in tool(cluster, "kafka-configs", *entity, "--describe"))
    tool(cluster, "kafka-configs", *entity, "--alter", "--delete-config", name)
    eventually(lambda: change not in tool(cluster, "kafka-configs", *entity, "--describe"))


def test_features_and_the_quorum(cluster: Cluster) -> None:
    shown = tool(cluster, "kafka-features", "describe")
    assert re.search(r"group.version\s+SupportedMinVersion: 1\s+SupportedMaxVersion: 1", shown)
    same = tool(cluster, "kafka-features", "upgrade", "--feature", "group.version=1")
    assert "group.version was upgraded to 1" in same
    status = tool(cluster, "kafka-metadata-quorum", "describe", "--status")
    assert re.search(r"LeaderId:\s+[123]\n", status), status
    assert re.search(r"CurrentVoters:.*1.*2.*3", status), status
    replication = rows(tool(cluster, "kafka-metadata-quorum", "describe", "--replication"))
    roles = [row[-1] for row in replication[1:]]
    assert sorted(roles) == ["Follower", "Follower", "Leader"], replication


def test_folders_of_logs(cluster: Cluster) -> None:
    make(cluster, "stored")
    fill(cluster.bootstrap, "stored", ["x" * 1000])
    said = tool(cluster, "kafka-log-dirs", "--describe", "--topic-list", "stored")
    [line] = [one for one in said.splitlines() if one.startswith("{")]
    found = json.loads(line)
    assert sorted(one["broker"] for one in found["brokers"]) == [1, 2, 3]
    sizes = [
        part["size"]
        for one in found["brokers"]
        for folder in one["logDirs"]
        for part in folder["partitions"]
        if part["partition"] == "stored-0"
    ]
    assert len(sizes) == 3
    assert all(size >= 1000 for size in sizes)


def test_a_leader_is_elected(cluster: Cluster) -> None:
    make(cluster, "led", 2, 3, 1)
    named = ("--topic", "led", "--partition", "0")
    preferred = ("--election-type", "preferred")
    said = tool(cluster, "kafka-leader-election", *preferred, *named)
    assert "Valid replica already elected for partitions led-0" in said
    cluster.nodes[2].stop()
    try:
        eventually(lambda: cluster.admin.list_topics("led").topics["led"].partitions[0].leader == 3)
    finally:
        cluster.nodes[2].start()
    cluster.until_in_sync("led")

    def is_back() -> bool:
        return "Leader: 2" in tool(cluster, "kafka-topics", "--describe", "--topic", "led")

    if not is_back():  # The cluster itself may have been quicker.
        tool(cluster, "kafka-leader-election", *preferred, *named)
    eventually(is_back)


class Plan:
    """A move of partition 0 of a topic, as a file for the tool."""

    def __init__(self, cluster: Cluster, folder: Path, topic: str, *replicas: int) -> None:
        self._cluster = cluster
        self._file = folder / "plan.json"
        move = {"topic": topic, "partition": 0, "replicas": list(replicas)}
        self._file.write_text(json.dumps({"version": 1, "partitions": [move]}))

    def run(self, *arguments: str) -> str:
        named = ("--reassignment-json-file", str(self._file))
        return tool(self._cluster, "kafka-reassign-partitions", *named, *arguments)


def make_heavy(cluster: Cluster, topic: str) -> None:
    make(cluster, topic, 1, 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(HEAVY_MESSAGES):
        producer.produce(topic, os.urandom(HEAVY_BYTES))
        producer.poll(0)
    assert producer.flush(60) == 0


def throttles(cluster: Cluster) -> str:
    entity = ("--entity-type", "brokers", "--entity-name")
    return "".join(
        tool(cluster, "kafka-configs", *entity, number, "--describe") for number in "123"
    )


def replicas_of(cluster: Cluster, topic: str) -> list[int]:
    found = cluster.admin.list_topics(topic).topics[topic].partitions[0].replicas
    return [int(one) for one in found]


def test_a_move_is_throttled_verified_and_finished(cluster: Cluster, tmp_path: Path) -> None:
    make_heavy(cluster, "moved")
    plan = Plan(cluster, tmp_path, "moved", 1, 3)
    assert "Successfully started partition reassignment" in plan.run(
        "--execute", "--throttle", str(RATE)
    )
    assert f"throttled.rate={RATE}" in throttles(cluster)
    assert "is still in progress" in plan.run("--verify", "--preserve-throttles")
    assert "moved-0" in tool(cluster, "kafka-reassign-partitions", "--list")
    said = plan.run("--execute", "--additional", "--throttle", "100000000")
    assert "Successfully started" in said
    eventually(lambda: "is completed" in plan.run("--verify", "--preserve-throttles"), within=120)
    plan.run("--verify")
    assert replicas_of(cluster, "moved") == [1, 3]
    assert "throttled.rate" not in throttles(cluster)


def test_a_move_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    make_heavy(cluster, "stayed")
    plan = Plan(cluster, tmp_path, "stayed", 1, 3)
    plan.run("--execute", "--throttle", str(RATE))
    assert "Successfully cancelled" in plan.run("--cancel")
    assert replicas_of(cluster, "stayed") == [1, 2]
    assert "throttled.rate" not in throttles(cluster)
    assert "No partition reassignments found" in tool(
        cluster, "kafka-reassign-partitions", "--list"
    )


def test_a_transaction_that_hangs_is_found_and_aborted(cluster: Cluster) -> None:
    make(cluster, "hanging")
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "sleeper",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("hanging", b"never")
    assert producer.flush(30) == 0
    listed = rows(tool(cluster, "kafka-transactions", "list"))
    assert "sleeper" in [row[0] for row in listed], listed
    described = tool(cluster, "kafka-transactions", "describe", "--transactional-id", "sleeper")
    assert "Ongoing" in described
    assert "hanging-0" in described
    named = ("--topic", "hanging", "--partition", "0")
    producers = rows(tool(cluster, "kafka-transactions", "describe-producers", *named))
    [row] = [one for one in producers if one[0].isdigit()]
    assert row[-1] == "0", "the first offset of the transaction"
    # It is not hanging: its coordinator knows it and has not reached its time-out.
    found = tool(
        cluster, "kafka-transactions", "find-hanging", *named, "--max-transaction-timeout", "1"
    )
    assert [row for row in rows(found) if row[0] == "hanging"] == [], found
    tool(cluster, "kafka-transactions", "abort", *named, "--start-offset", "0")

    def is_over() -> bool:
        said = tool(cluster, "kafka-transactions", "describe", "--transactional-id", "sleeper")
        return "CompleteAbort" in said

    eventually(is_over)
    left = tool(cluster, "kafka-transactions", "describe-producers", *named)
    assert rows(left)[-1][-1] == "None", left
