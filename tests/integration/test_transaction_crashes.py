"""Consume, transform, produce: each message once, though clients and the node are killed.

A stream of numbers is copied from one topic to another by processes that read, write and commit
their offsets in transactions. They and the node are killed at random moments. At the end every
number that was written to the source is in the target, exactly once, for whoever reads what is
committed.
"""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from .process import END_WITH_US, Broker
from .topics import create_topic
from .transacting import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SENTINEL,
    Write,
    put,
    read_confluent,
    transactional,
)
from .transformer import TARGET_PARTITIONS
from .waiting import eventually
from .writer import Writer

SOURCE, TARGET, GROUP = "numbers", "copies", "copiers"
SOURCE_PARTITIONS = 4
TRANSFORMERS = 2
CRASHES = 8
DRAIN_SECONDS_MAX = 60
# How long a campaign lasts is for a good part how long a dead member is waited for.
SETTINGS: dict[str, object] = {
    "groups.initial_rebalance_delay_ms": 0,
    "groups.session_ms_min": 1_000,
}

StartBroker = Callable[..., Broker]

_log = logging.getLogger(__name__)


class Child:
    """A transformer that is started again whenever it has ended."""

    def __init__(self, bootstrap: str, number: int, output: Path) -> None:
        self.transactional_id = f"copier-{number}"
        self.lives = 0
        self._bootstrap = bootstrap
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def keep_alive(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.lives += 1
        command = [*END_WITH_US, sys.executable, "-m", "tests.integration.transformer"]
        command += [self._bootstrap, SOURCE, TARGET, GROUP, self.transactional_id, str(self.lives)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class Campaign:
    """The node, the copiers and whoever kills them."""

    def __init__(self, node: Broker, seed: int, output: Path) -> None:
        self.node = node
        self.children = [Child(node.bootstrap, number, output) for number in range(TRANSFORMERS)]
        self.node_kills = 0
        self._random = random.Random(seed)
        self._writer = Writer(node.bootstrap, SOURCE, partitions=SOURCE_PARTITIONS, value_bytes=8)
        self._sent = 0
        self._is_over = threading.Event()
        self._nurse = threading.Thread(target=self._keep_alive)

    def run(self, crashes: int) -> int:
        """Crash so many times, then let the copying come to its end; how much was written."""
        self._nurse.start()
        try:
            for _ in range(crashes):
                self._write_for(self._random.uniform(0.3, 2.0))
                self._crash()
            self._write_for(1.0)
            self._writer.finish()
            eventually(self._is_drained, because="all is copied", within=DRAIN_SECONDS_MAX)
        finally:
            self._is_over.set()
            self._nurse.join(30)
            for child in self.children:
                child.kill()
        return self._sent

    def _write_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._writer.write(20)
            self._sent += 20
            self._is_over.wait(0.02)

    def _crash(self) -> None:
        if self._random.random() < 0.5:
            self._random.choice(self.children).kill()
            return
        self.node_kills += 1
        self.node.kill()
        self.node.start()

    def _keep_alive(self) -> None:
        while not self._is_over.wait(0.05):
            for child in self.children:
                child.keep_alive()

    def _is_drained(self) -> bool:
        """Whether the group has committed the end of the source."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.node.bootstrap,
                "group.id": GROUP,
                "isolation.level": READ_UNCOMMITTED,
                "log_level": 2,
            }
        )
        places = [TopicPartition(SOURCE, number) for number in range(SOURCE_PARTITIONS)]
        try:
            found = consumer.committed(places, timeout=10)
            ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
        except KafkaException:
            return False
        finally:
            consumer.close()
        return [place.offset for place in found] == ends


def copies(node: Broker, children: list[Child]) -> Counter[int]:
    """What readers of committed records find in the target."""
    for child in children:
        # Whatever the last one of this name left open is aborted.
        producer = transactional(node.bootstrap, child.transactional_id)
    producer.begin_transaction()
    put(producer, [Write(TARGET, SENTINEL, number) for number in range(TARGET_PARTITIONS)])
    producer.commit_transaction(30)
    found: Counter[int] = Counter()
    for number in range(TARGET_PARTITIONS):
        values = read_confluent(node.bootstrap, TARGET, number, READ_COMMITTED)
        assert values[-1] == SENTINEL
        found.update(int(value) for value in values[:-1])
    return found


@pytest.mark.single_node("test_cluster_transactions.py kills nodes of a cluster")
@pytest.mark.seeds(1)
@pytest.mark.timeout(240)
def test_every_message_is_copied_exactly_once_whoever_is_killed(
    seed: int, start_broker: StartBroker, tmp_path: Path
) -> None:
    node = start_broker(SETTINGS)
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    create_topic(admin, SOURCE, partitions=SOURCE_PARTITIONS)
    create_topic(admin, TARGET, partitions=TARGET_PARTITIONS)
    output = tmp_path / "transformers"
    campaign = Campaign(node, seed, output)
    began = time.monotonic()
    try:
        sent = campaign.run(CRASHES)
        found = copies(node, campaign.children)
    except BaseException:
        _log.error("transformers said:\n%s", output.read_text()[-4000:])
        _log.error("the node said:\n%s", node.log_text[-4000:])
        raise
    _log.info(
        "seed %d: %d crashes, %d of them of the node, %d lives, %d numbers in %.0f s",
        seed,
        CRASHES,
        campaign.node_kills,
        sum(child.lives for child in campaign.children),
        sent,
        time.monotonic() - began,
    )
    assert sent > 100
    assert [number for number, count in found.items() if count > 1] == []
    assert sorted(found) == list(range(sent))
    # Nothing is left undecided.
    for number in range(TARGET_PARTITIONS):
        place = TopicPartition(TARGET, number)
        ends = [
            admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place]
            .result(20)
            .offset
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        assert ends[0] == ends[1]
