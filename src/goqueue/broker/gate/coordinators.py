"""Finding coordinators, for clients that connect to the coordinator themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from goqueue.broker.gate.operation import NO_OWNER
from goqueue.broker.topics.topics import Topic
from goqueue.model.errors import GoQueueError

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

Coordinators = dict[str, int | GoQueueError]  # a node for each name, or the error


async def find_coordinators(
    broker: Broker,
    listener: str,
    topic: Topic,
    partition_of: Callable[[str], int],
    names: Iterable[str],
) -> dict[str, int]:
    """Return the coordinator of each name, -1 if there is none.

    Waits a short time until every coordinator has an address at the client's listener.
    """
    numbers = {name: partition_of(name) for name in names}

    def node_of(number: int) -> int:
        leader = broker.placement(topic, number).leader
        return leader if _is_reachable(broker, leader, listener) else NO_OWNER

    await broker.topics.internal.until(
        lambda: all(node_of(number) != NO_OWNER for number in numbers.values())
    )
    return {name: node_of(number) for name, number in numbers.items()}


def _is_reachable(broker: Broker, node: int, listener: str) -> bool:
    cluster = broker.cluster
    if cluster is None:
        return node == broker.node_id
    return any(
        one.id == node and listener in one.addresses and cluster.is_there(node)
        for one in cluster.nodes()
    )
