"""Three nodes are upgraded one after the other, while clients of every kind go on.

The release before this one is installed beside it. Nothing that was answered is lost, doubled or
undone; a node can go back as long as the upgrade is not finalized; then its old release refuses to
start and says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import NewTopic

from goqueue.model.support import LEVEL_MAX, LEVEL_MIN
from tests.integration.cluster import Cluster, ClusterBroker
from tests.integration.upgrade.releases import NoEarlierRelease, installed, release_before
from tests.integration.upgrade.work import (
    Committing,
    Grouping,
    Producing,
    Queueing,
    Reading,
    Scheduling,
    Worker,
    Working,
)
from tests.integration.waiting import eventually

pytestmark = pytest.mark.timeout(300)

SETTINGS: dict[str, object] = {
    "cluster.heartbeat_ms": 300,
    "cluster.session_ms": 3_000,
}
SECONDS_BETWEEN = 1.0  # of work between two steps of the upgrade


@pytest.fixture(scope="module")
def old_release() -> Path:
    try:
        commit = release_before()
    except NoEarlierRelease as error:
        pytest.skip(str(error))
    return installed(commit)


@pytest.fixture
def cluster(tmp_path: Path, old_release: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, settings=SETTINGS)
    try:
        for node in cluster.nodes.values():
            use(node, old_release)
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def use(node: ClusterBroker, release: Path | None) -> None:
    """Have the next start of a node run a release; None is this one."""
    node.environ = {} if release is None else {"PYTHONPATH": str(release)}


def change(cluster: Cluster, number: int, release: Path | None) -> None:
    """Stop a node, start it again as another release, and wait until the cluster is whole."""
    node = cluster.nodes[number]
    node.stop()
    use(node, release)
    node.start()
    until_healthy(cluster)
    time.sleep(SECONDS_BETWEEN)


def until_healthy(cluster: Cluster) -> None:
    """What an operator waits for before the next node."""

    def is_healthy() -> bool:
        answers = [
            httpx.get(f"{node.http}/v1/admin/cluster/health", timeout=10)
            for node in cluster.nodes.values()
        ]
        return all(one.status_code == 200 and one.json()["status"] == "ok" for one in answers)

    eventually(is_healthy, because="the cluster is healthy")


def level(cluster: Cluster) -> dict[str, int]:
    found = httpx.get(f"{cluster.nodes[1].http}/v1/admin/cluster/level", timeout=10).json()
    return {name: found[name] for name in ("level", "supported")}


def create_topics(cluster: Cluster) -> None:
    wanted = [
        NewTopic(topic, 3, replication_factor=3, config={"min.insync.replicas": "2"})
        for topic in ("orders", "ledger", "tasks", "reminders")
    ]
    for future in cluster.admin.create_topics(wanted).values():
        future.result(timeout=30)
    until_healthy(cluster)


def test_nothing_is_lost_while_nodes_are_upgraded_one_by_one(
    cluster: Cluster, old_release: Path
) -> None:
    create_topics(cluster)
    kinds = (Producing, Committing, Reading, Working, Grouping, Queueing, Scheduling)
    workers: list[Worker] = [kind(cluster) for kind in kinds]
    group = httpx.put(
        f"{cluster.nodes[1].http}/v1/groups/workers", json={"settings": {"deliveries_max": 0}}
    )
    assert group.status_code < 300, group.text
    for worker in workers:
        worker.start()
    time.sleep(SECONDS_BETWEEN)
    assert [worker.failure for worker in workers] == [None] * len(workers)
    change(cluster, 1, None)
    assert level(cluster) == {"level": LEVEL_MIN, "supported": LEVEL_MIN}
    check_unfinished(cluster)
    change(cluster, 1, old_release)  # nothing is finalized, so a node can go back
    for number in cluster.nodes:
        change(cluster, number, None)
    eventually(lambda: level(cluster)["supported"] == LEVEL_MAX, because="nodes have told theirs")
    assert level(cluster)["level"] == LEVEL_MIN
    finalized = httpx.post(f"{cluster.nodes[2].http}/v1/admin/cluster/level", json={}, timeout=20)
    assert finalized.json()["level"] == LEVEL_MAX
    check_finalized(cluster)
    time.sleep(SECONDS_BETWEEN)
    for worker in workers:
        worker.stop()
    producing, committing, reading, working, grouping, queueing, scheduling = workers
    assert isinstance(producing, Producing)
    producing.check()
    assert isinstance(committing, Committing)
    committing.check()
    assert isinstance(reading, Reading)
    reading.check(producing.answered)
    assert isinstance(working, Working)
    working.check()
    assert isinstance(grouping, Grouping)
    grouping.check()
    assert isinstance(queueing, Queueing)
    queueing.check()
    assert isinstance(scheduling, Scheduling)
    scheduling.check()
    for worker in workers[:2] + workers[3:]:
        assert worker.answered, f"{type(worker).__name__} has done nothing"
    check_old_refused(cluster.nodes[3], old_release)


def check_unfinished(cluster: Cluster) -> None:
    """With a node of each release, what only one of them knows is refused for now."""
    path, body = "/v1/groups/late", {"settings": {"start": "by_duration:PT1H"}}
    refused = httpx.put(cluster.nodes[1].http + path, json=body, timeout=10)
    assert (refused.status_code, refused.json()["code"]) == (503, "upgrade_in_progress")
    finalize = httpx.post(f"{cluster.nodes[1].http}/v1/admin/cluster/level", json={"level": 3})
    assert finalize.status_code in (400, 503), finalize.text
    topics = cluster.admin.list_topics(timeout=20).topics
    assert "__journeys" not in topics, "older nodes would show it to clients"


def check_finalized(cluster: Cluster) -> None:
    path, body = "/v1/groups/late", {"settings": {"start": "by_duration:PT1H"}}
    accepted = httpx.put(cluster.nodes[1].http + path, json=body, timeout=10)
    assert accepted.status_code < 300, accepted.text
    eventually(
        lambda: "__journeys" in cluster.admin.list_topics(timeout=20).topics,
        because="the topic of the new level is created",
    )
    nodes = httpx.get(f"{cluster.nodes[1].http}/v1/admin/nodes", timeout=10).json()["nodes"]
    assert {one["level_max"] for one in nodes} == {LEVEL_MAX}


def check_old_refused(node: ClusterBroker, old_release: Path) -> None:
    node.stop()
    use(node, old_release)
    node.launch()
    with pytest.raises(AssertionError, match="upgrade this node"):
        node.until_ready()
