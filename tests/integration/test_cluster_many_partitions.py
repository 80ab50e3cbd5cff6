"""Ten thousand partitions made at once on three nodes: no other client waits long."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from .abuse import prompt
from .cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PARTITIONS = 10_000
NODES = (1, 2, 3)
READY_SECONDS_MAX = 120
# Three nodes share the cores of the machine, and what they do in one turn takes longer then. Opened
# all at once, the partitions keep a node busy for 1.5 s even if it is alone.
BUSY_SECONDS_MAX = 1.0


def test_nobody_waits_while_ten_thousand_partitions_are_opened(cluster: Cluster) -> None:
    with ExitStack() as stack:
        for number in NODES:
            stack.enter_context(prompt(cluster.nodes[number], busy=BUSY_SECONDS_MAX))
        topic = NewTopic("wide", num_partitions=PARTITIONS, replication_factor=3)
        cluster.admin.create_topics([topic])["wide"].result(READY_SECONDS_MAX)
        cluster.until_in_sync("wide")
    # Every partition takes a record once it is open.
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 2})
    for number in range(0, PARTITIONS, 97):
        producer.produce(
            "wide",
            b"%d" % number,
            partition=number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(READY_SECONDS_MAX) == 0
    assert not failed
