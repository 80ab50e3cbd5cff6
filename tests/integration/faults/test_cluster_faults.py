"""Nodes, networks, disks and clocks fail under three real nodes; nothing acknowledged is lost.

`make campaign-cluster SEEDS=20` does it for longer, in another order each time.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.cluster import CLUSTER_SETTINGS
from tests.integration.waiting import eventually

from .histories import Reader, Writer, judge
from .machines import MachineBroker, Network, faketime_library, why_not
from .nemesis import Nemesis

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

TOPIC = "history"
PARTITIONS = 3
NODES = 3
FAULTS = 6  # of each run; another run takes others
FAULT_SECONDS = (1.0, 3.5)  # how long one lasts, shorter and longer than it takes to be noticed
CALM_SECONDS = (0.5, 2.0)
RECOVERY_SECONDS_MAX = 60.0
CUT_SECONDS = 15.0  # TCP sends again 13 s after its first attempt, and then after 26 s
SERVES_SECONDS_MAX = 8.0
SETTINGS = {
    **CLUSTER_SETTINGS,
    "storage.commit_journal_bytes": 1 << 20,
    "storage.free_bytes_min": 1 << 20,
}

_log = logging.getLogger(__name__)


class Machines:
    """Three nodes on machines of their own."""

    def __init__(self, directory: Path) -> None:
        self.network = Network(NODES)
        self.nodes: dict[int, MachineBroker] = {}
        for number in self.network.numbers:
            home = directory / f"node-{number}"
            home.mkdir()
            self.nodes[number] = MachineBroker(home, SETTINGS, node_id=number, network=self.network)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        self.network.make()
        for node in self.nodes.values():
            node.mount()
            node.launch()
        for node in self.nodes.values():
            node.until_ready()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def close(self) -> None:
        for node in self.nodes.values():
            node.resume()
            node.close()
            node.unmount()
        self.network.remove()

    def create(self) -> None:
        topic = NewTopic(TOPIC, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
        for future in self._admin.create_topics([topic]).values():
            future.result(timeout=30)
        self.until_whole()

    def until_whole(self) -> None:
        eventually(self._is_whole, because="all copies are in sync", within=RECOVERY_SECONDS_MAX)

    def leader(self) -> int:
        """Who leads the first partition; anyone when nobody says."""
        try:
            found = self._admin.list_topics(TOPIC, timeout=2).topics[TOPIC].partitions[0].leader
        except KafkaException:
            found = -1
        return int(found) if found in self.nodes else 1

    def ends(self) -> dict[int, int]:
        asker = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends", "log_level": 0})
        try:
            return {
                one: asker.get_watermark_offsets(TopicPartition(TOPIC, one), timeout=20)[1]
                for one in range(PARTITIONS)
            }
        finally:
            asker.close()

    def _is_whole(self) -> bool:
        try:
            partitions = self._admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        except KafkaException:
            return False
        return len(partitions) == PARTITIONS and all(
            one.leader in self.nodes and len(one.isrs) == NODES for one in partitions.values()
        )


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    machines = Machines(tmp_path)
    try:
        machines.start()
        yield machines
    finally:
        machines.close()


@pytest.mark.seeds(1)
def test_no_fault_loses_what_was_acknowledged(machines: Machines, seed: int) -> None:
    if faketime_library() is None:
        _log.warning("libfaketime is not installed: clocks stay right (Debian: libfaketime)")
    machines.create()
    writers = [
        Writer(name, machines.bootstrap, TOPIC, PARTITIONS, **{"enable.idempotence": True})
        for name in ("one", "two")
    ]
    hasty = Writer(
        "hasty", machines.bootstrap, TOPIC, PARTITIONS, **{"acks": 1, "message.timeout.ms": 5_000}
    )
    live = Reader(machines.bootstrap, TOPIC, PARTITIONS)
    for one in (*writers, hasty, live):
        one.start()
    nemesis = Nemesis(machines.nodes, machines.network, seed, leader=machines.leader)
    chance = random.Random(seed)
    for deed in nemesis.order()[:FAULTS]:
        nemesis.strike(deed)
        time.sleep(chance.uniform(*FAULT_SECONDS))
        nemesis.mend()
        time.sleep(chance.uniform(*CALM_SECONDS))
    machines.until_whole()
    for one in (*writers, hasty):
        one.finish()
    final = Reader(machines.bootstrap, TOPIC, PARTITIONS)
    final.read_up_to(machines.ends(), seconds_max=60)
    final.finish()
    live.finish()
    verdict = judge(writers, hasty, live, final)
    _log.info("seed %d: %s", seed, verdict)
    assert verdict.is_clean, f"seed {seed}: {verdict}\n" + "\n".join(nemesis.done)
    refused = [writer for writer in writers if writer.refused and writer.fatal is None]
    assert not refused, f"seed {seed}: {verdict}, first: {refused[0].refused[0]}"
    assert verdict.acked > 0


@pytest.mark.parametrize("is_heard", [True, False], ids=["does not hear", "is not heard"])
def test_soon_after_a_one_way_cut_every_node_serves_again(
    machines: Machines, is_heard: bool
) -> None:
    """TCP alone would try again only after as long as the cut has lasted."""
    machines.create()
    leader = machines.leader()
    others = [one for one in machines.nodes if one != leader]
    machines.network.cut([(one, leader) if is_heard else (leader, one) for one in others])
    time.sleep(CUT_SECONDS)
    machines.network.heal()
    healed = time.monotonic()
    for node in machines.nodes.values():
        for number in range(PARTITIONS):
            body = {"value": "v", "partition": number}
            eventually(
                lambda: _publishes(node, body),  # noqa: B023
                because=f"node {node.node_id} publishes to partition {number}",
                within=RECOVERY_SECONDS_MAX,
            )
            seconds = time.monotonic() - healed
            _log.info("node %d, partition %d: %.1f s", node.node_id, number, seconds)
    assert time.monotonic() - healed < SERVES_SECONDS_MAX


def _publishes(node: MachineBroker, body: dict[str, object]) -> bool:
    try:
        answer = httpx.post(f"{node.http}/v1/topics/{TOPIC}/publish", json=body, timeout=1.0)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200
