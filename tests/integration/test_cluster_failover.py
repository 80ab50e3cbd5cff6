"""A node is killed or stopped under load: its clients notice as little as can be."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from .cluster import Cluster
from .waiting import eventually

pytestmark = pytest.mark.timeout(240)

GROUPS = [f"workers-{number}" for number in range(8)]
ROUNDS = 2  # of all groups that must succeed after a node has gone


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("failover"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


class Worker:
    """Uses one queue group after the other through one node, and notes what it is told."""

    def __init__(self, address: str) -> None:
        self.refusals: list[str] = []
        self.done: Counter[str] = Counter()
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(40)

    def _run(self) -> None:
        with httpx.Client(base_url=self._address, timeout=40) as client:
            while not self._stop.is_set():
                for group in GROUPS:
                    self._work(client, group)

    def _work(self, client: httpx.Client, group: str) -> None:
        path = f"/v1/groups/{group}"
        received = self._ask(client, "POST", f"{path}/receive", {"topic": "work"})
        if received is None:
            return
        receipts = [one["receipt"] for one in received["messages"]]
        if receipts:
            self._ask(client, "POST", f"{path}/ack", {"receipts": receipts})
        if self._ask(client, "GET", f"{path}/stats?topic=work", None) is not None:
            self.done[group] += 1

    def _ask(self, client: httpx.Client, method: str, path: str, body: Any) -> Any:
        answer = client.request(method, path, json=body)
        if answer.is_success:
            return answer.json()
        self.refusals.append(f"{method} {answer.text}")
        return None


def owner_of_some(cluster: Cluster) -> int:
    """A node that owns some of the groups, and with them their leases."""
    return cluster.leader_of("__delivery", 0)


@contextmanager
def working(cluster: Cluster, nodes: Sequence[int]) -> Iterator[list[Worker]]:
    workers = [Worker(cluster.nodes[number].http) for number in nodes]
    try:
        until_all_did(workers, ROUNDS)
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def until_all_did(workers: Sequence[Worker], more: int) -> None:
    """Wait until every worker has used every group so many times more."""
    wanted = [{group: worker.done[group] + more for group in GROUPS} for worker in workers]

    def is_so() -> bool:
        return all(
            worker.done[group] >= count
            for worker, counts in zip(workers, wanted, strict=True)
            for group, count in counts.items()
        )

    eventually(is_so, because="every group is served at every node")


def prepare(cluster: Cluster) -> None:
    with httpx.Client(base_url=cluster.nodes[1].http, timeout=40) as client:
        body = {"name": "work", "partitions": 3, "replication": 3}
        if client.get("/v1/topics/work").status_code == 404:
            assert client.post("/v1/topics", json=body).is_success
        for group in GROUPS:
            assert client.put(f"/v1/groups/{group}", json={"kind": "queue"}).is_success
        messages = [{"value": str(number)} for number in range(1_000)]
        assert client.post("/v1/topics/work/batch", json={"messages": messages}).is_success
    for topic in ("work", "__delivery"):
        cluster.until_in_sync(topic)


def test_who_asks_others_hardly_notices_that_the_owner_is_killed(cluster: Cluster) -> None:
    prepare(cluster)
    victim = owner_of_some(cluster)
    others = [number for number in cluster.nodes if number != victim]
    with working(cluster, others) as workers:
        cluster.nodes[victim].kill()
        until_all_did(workers, ROUNDS)
    # Of what was under way when the owner died nobody knows what became of it; each worker has
    # one request under way at a time. All others have waited for the new owner.
    for worker in workers:
        assert len(worker.refusals) <= 1, worker.refusals
        assert all("request_timed_out" in one for one in worker.refusals), worker.refusals
        assert not any(one.startswith("GET") for one in worker.refusals), worker.refusals
    cluster.nodes[victim].start()


def test_nobody_notices_that_the_owner_is_restarted(cluster: Cluster) -> None:
    prepare(cluster)
    owner = owner_of_some(cluster)
    others = [number for number in cluster.nodes if number != owner]
    with working(cluster, others) as workers:
        cluster.nodes[owner].stop()
        until_all_did(workers, 1)
        cluster.nodes[owner].start()
        until_all_did(workers, 1)
    assert [worker.refusals for worker in workers] == [[], []]
