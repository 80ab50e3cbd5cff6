"""The first requests to a cluster that has just formed, many at once and at every node."""

from __future__ import annotations

from functools import partial

import pytest

from goqueue.wire.carrier.application import Application
from goqueue.wire.carrier.front_end import Limits
from goqueue.wire.http.front_end import FrontEnd
from goqueue.wire.http.operations import OPERATIONS
from goqueue.wire.http.registry_operations import REGISTRY_PREFIX, registry_dialect
from goqueue.wire.kafka.front_end import FrontEnd as KafkaFrontEnd
from goqueue.wire.kafka.front_end import Limits as KafkaLimits
from goqueue.wire.kafka.messages import API_BY_NAME
from goqueue.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from tests.first_uses import COUNT, FIRST_USES, FirstUse, numbered
from tests.simulation.cluster_world import ClusterNode, ClusterWorld
from tests.simulation.kafka_peer import KafkaPeer
from tests.unit.wire.http.client import Wire, request


class FrontNode:
    """A node of a cluster that answers HTTP as soon as its cluster counts on it."""

    def __init__(self, node: ClusterNode) -> None:
        broker = node.broker
        front = FrontEnd(broker.gate, Limits(), OPERATIONS)
        mounts = {REGISTRY_PREFIX.strip("/"): registry_dialect(REGISTRY_PREFIX)}
        self.application = Application(front, mounts=mounts)
        self.sent: list[tuple[FirstUse, Wire]] = []

    def send(self, use: FirstUse, number: int) -> None:
        wire = Wire(self.application)
        body = numbered(use.body, number)
        wire.feed(request(use.method, use.path.format(number), body))
        self.sent.append((use, wire))


def send_at_once(world: ClusterWorld, *, when_formed: bool) -> list[FrontNode]:
    """Have every node asked for everything, in the moment in which it begins to serve."""
    fronts = {number: FrontNode(node) for number, node in world.nodes.items()}
    uses = [use for use in FIRST_USES.values() if "orders" not in str(use.body) + use.path]
    if not when_formed:
        world.run_until(world.is_whole)
        world.create("orders")
        uses = list(FIRST_USES.values())

    def send(number: int) -> None:
        wanted = [(use, at) for use in uses for at in range(3)]
        world.random.shuffle(wanted)
        for use, at in wanted:
            fronts[number].send(use, at * 10 + number)

    for number, node in world.nodes.items():
        assert node.broker.cluster is not None
        node.broker.cluster.when_trusted(lambda number=number: send(number))  # type: ignore[misc]
    return list(fronts.values())


@pytest.mark.parametrize("key_type", [0, 1])
def test_a_coordinator_is_found_as_soon_as_a_node_serves(key_type: int) -> None:
    world = ClusterWorld(key_type)
    api, peers = API_BY_NAME["FindCoordinator"], []

    def ask(node: ClusterNode) -> None:
        front = KafkaFrontEnd(
            node.broker.local_gate, KafkaLimits(), advertised=lambda _: ("node", 9092)
        )
        peer = KafkaPeer(front, world.run_until)
        keys = [f"key-{number}" for number in range(COUNT)]
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
        peer.send(peer.frame(api, 4, request))
        peers.append(peer)

    for node in world.nodes.values():
        assert node.broker.cluster is not None
        node.broker.cluster.when_trusted(partial(ask, node))
    world.run_until(lambda: len(peers) == len(world.nodes) and all(p.has_answer for p in peers))
    for peer in peers:
        coordinators = peer.take_answer(api, 4).coordinators
        assert len(coordinators) == COUNT
        for one in coordinators:
            assert (one.error_code, one.node_id in world.nodes) == (0, True), one


@pytest.mark.parametrize("when_formed", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_no_first_use_is_refused(seed: int, when_formed: bool) -> None:
    world = ClusterWorld(seed, groups__initial_rebalance_delay_ms="0")
    fronts = send_at_once(world, when_formed=when_formed)

    def are_answered() -> bool:
        wires = [wire for front in fronts for _, wire in front.sent]
        answered = all(wire.answers and wire.answers[-1].is_whole for wire in wires)
        return all(front.sent for front in fronts) and answered

    world.run_until(are_answered)
    for front in fronts:
        for use, wire in front.sent:
            answer = wire.answers[-1]
            assert answer.status in use.statuses, (use.path, answer.body)
