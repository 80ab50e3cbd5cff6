"""The first requests for groups, transactions, queues, schedules and schemas, many at once."""

from __future__ import annotations

import pytest

from goqueue.wire.carrier.application import Application
from goqueue.wire.http.registry_operations import REGISTRY_PREFIX, registry_dialect
from tests.first_uses import COUNT, FIRST_USES, FirstUse, numbered
from tests.simulation.world import World
from tests.unit.wire.http.client import Client, request


class FreshNode(Client):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        mounts = {REGISTRY_PREFIX.strip("/"): registry_dialect(REGISTRY_PREFIX)}
        self.application = Application(self.front, mounts=mounts)

    def send_together(self, uses: list[FirstUse]) -> list[tuple[int, bytes]]:
        """Have all requests arrive in the same moment; statuses and bodies of the answers."""
        wires = [self.wire() for _ in uses]
        for number, (wire, use) in enumerate(zip(wires, uses, strict=True)):
            body = numbered(use.body, number)
            wire.feed(request(use.method, use.path.format(number), body))
        self.world.run_until(lambda: all(w.answers and w.answers[-1].is_whole for w in wires))
        return [(wire.answers[-1].status, wire.answers[-1].body) for wire in wires]


@pytest.fixture
def node(world: World) -> FreshNode:
    world.create("orders")
    return FreshNode(world)


@pytest.mark.parametrize("name", FIRST_USES)
def test_first_uses_of_one_kind_wait_for_what_the_node_sets_up(node: FreshNode, name: str) -> None:
    use = FIRST_USES[name]
    for status, body in node.send_together([use] * COUNT):
        assert status in use.statuses, body


@pytest.mark.parametrize("seed", range(10))
def test_first_uses_of_all_kinds_at_once(seed: int) -> None:
    world = World(seed, groups__initial_rebalance_delay_ms="0")
    world.create("orders")
    uses = list(FIRST_USES.values()) * 3
    world.random.shuffle(uses)
    answers = FreshNode(world).send_together(uses)
    for use, (status, body) in zip(uses, answers, strict=True):
        assert status in use.statuses, (use.path, body)
