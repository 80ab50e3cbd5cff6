"""The first requests to fresh nodes, many at once, over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from confluent_kafka import Consumer, Producer

from tests.first_uses import COUNT, FIRST_USES, FirstUse, numbered

from .cluster import Cluster
from .process import Broker
from .waiting import eventually

StartBroker = Callable[..., Broker]


def use_all_at_once(addresses: Sequence[str]) -> None:
    """Send each kind of first use to every node, all at the same time."""
    wanted = [
        (address, use, number * len(addresses) + place)
        for use in FIRST_USES.values()
        for place, address in enumerate(addresses)
        for number in range(COUNT // len(addresses))
    ]

    def send(one: tuple[str, FirstUse, int]) -> str:
        address, use, number = one
        body = numbered(use.body, number)
        path = use.path.format(number)
        answer = httpx.request(use.method, address + path, json=body, timeout=30)
        is_right = answer.status_code in use.statuses
        return "" if is_right else f"{use.method} {path}: {answer.status_code} {answer.text}"

    with ThreadPoolExecutor(2 * COUNT) as pool:
        wrong = [text for text in pool.map(send, wanted) if text]
    assert not wrong, "\n".join(wrong)


def test_a_fresh_node_refuses_none_of_many_first_uses(start_broker: StartBroker) -> None:
    node = start_broker()
    httpx.post(f"{node.http}/v1/topics", json={"name": "orders"}).raise_for_status()
    use_all_at_once([node.http])


def test_a_fresh_cluster_refuses_none_of_many_first_uses(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        nodes = list(cluster.nodes.values())
        httpx.post(f"{nodes[0].http}/v1/topics", json={"name": "orders"}).raise_for_status()
        use_all_at_once([node.http for node in nodes])
    finally:
        cluster.close()


def test_kafka_clients_are_the_first_to_use_groups_and_transactions(
    start_broker: StartBroker,
) -> None:
    node = start_broker({"groups.initial_rebalance_delay_ms": 0})
    httpx.post(f"{node.http}/v1/topics", json={"name": "orders"}).raise_for_status()
    common = {"bootstrap.servers": node.bootstrap, "log_level": 2}
    consumers = [Consumer({**common, "group.id": f"first-{number}"}) for number in range(COUNT)]
    producers = [Producer({**common, "transactional.id": f"t-{n}"}) for n in range(COUNT)]
    try:
        for consumer in consumers:
            consumer.subscribe(["orders"])
        with ThreadPoolExecutor(COUNT) as pool:
            list(pool.map(lambda one: one.init_transactions(20), producers))

        def are_assigned() -> bool:
            for consumer in consumers:
                consumer.poll(0)
            return all(consumer.assignment() for consumer in consumers)

        eventually(are_assigned, because="every consumer has its partition")
    finally:
        for consumer in consumers:
            consumer.close()
