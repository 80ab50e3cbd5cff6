"""Groups in trouble: one owner for each partition, no needless pause, no lost commit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from goqueue.groups import limits
from tests.simulation.groups_model import ClassicClient, Client, ConsumerClient, World

CLIENTS_MAX = 6
CHAOS_MS = 40_000
QUIET_MS = 30_000

Maker = Callable[[World, str], Client]


def _eager(world: World, name: str) -> Client:
    return ClassicClient(world, name, is_eager=True)


def _cooperative(world: World, name: str) -> Client:
    return ClassicClient(world, name, is_eager=False)


def _consumer(world: World, name: str) -> Client:
    is_static = world.random.random() < 0.3
    return ConsumerClient(world, name, f"i-{name}" if is_static else None)


def _mixed(world: World, name: str) -> Client:
    """Classic members of both tempers could not agree on a protocol, so these are cooperative."""
    return world.random.choice([_cooperative, _consumer])(world, name)


def _mixed_eager(world: World, name: str) -> Client:
    return world.random.choice([_eager, _consumer])(world, name)


KINDS = [_eager, _cooperative, _consumer, _mixed, _mixed_eager]


@pytest.mark.seeds(60)
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__.strip("_"))
def test_groups_keep_their_promises_through_any_trouble(make: Maker, seed: int) -> None:
    world = World(seed)
    _trouble(world, make)
    _quiet(world)
    _check_settled(world)
    _check_nobody_pauses_for_a_newcomer(world, make)


@pytest.mark.seeds(60)
@pytest.mark.parametrize("make", [_consumer, _mixed], ids=lambda make: make.__name__.strip("_"))
def test_so_do_large_groups_that_gather_changes_before_they_assign(
    make: Maker, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every group counts as a large one here, and pauses for a second and more between two."""
    monkeypatch.setattr(limits, "ASSIGNED_AT_ONCE_MAX", 1)
    monkeypatch.setattr(limits, "ASSIGNMENT_US_PER_MEMBER", 400_000)
    world = World(seed)
    _trouble(world, make)
    _quiet(world)
    _check_settled(world)


def _trouble(world: World, make: Maker) -> None:
    """Every now and then something happens to somebody."""
    until_ms = world.now_ms + CHAOS_MS
    _start(world, make)
    while world.now_ms < until_ms:
        world.run(world.random.randint(50, 3_000))
        living = [client for client in world.clients if client.is_alive]
        deed = world.random.random()
        if not living or (deed < 0.35 and len(living) < CLIENTS_MAX):
            _start(world, make)
        elif deed < 0.5:
            _stop_or_restart(world.random.choice(living))
        elif deed < 0.6:
            world.random.choice(living).kill()
        elif deed < 0.75:
            world.random.choice(living).sleep(world.random.randint(500, 15_000))
        elif deed < 0.9:
            world.crash()
        else:
            world.grow(world.random.choice(sorted(world.topics)))


def _stop_or_restart(client: Client) -> None:
    if isinstance(client, ConsumerClient) and client.instance_id is not None:
        client.restart()
    else:
        client.stop()


def _start(world: World, make: Maker) -> Client:
    client = make(world, f"c{len(world.clients)}")
    client.start()
    return client


def _quiet(world: World) -> None:
    world.is_calm = True
    if not any(client.is_alive for client in world.clients):
        _start(world, _consumer)
    world.run(QUIET_MS)


def _check_settled(world: World) -> None:
    living = [client for client in world.clients if client.is_alive]
    known = world.known_members()
    assert known is not None
    assert known.keys() == {client.member_id for client in living}
    everything = {(topic, n) for topic, count in world.topics.items() for n in range(count)}
    assert set().union(*(client.owned for client in living)) == everything
    sizes = [len(client.owned) for client in living]
    assert max(sizes) - min(sizes) <= 1
    for client in living:
        if isinstance(client, ConsumerClient):
            assert client.owned == known[client.member_id]


def _check_nobody_pauses_for_a_newcomer(world: World, make: Maker) -> None:
    living = [client for client in world.clients if client.is_alive]
    before = {client: client.owned for client in living}
    for client in living:
        client.released.clear()
    newcomer = _start(world, make)
    world.run(QUIET_MS)
    _check_settled(world)
    # A protocol that the newcomer changes is learnt by joining anew, and not only by its members.
    for client in living:
        if not client.is_eager:
            assert client.released.isdisjoint(before[client] & client.owned), client
    moved = sum(len(before[client] - client.owned) for client in living)
    if not any(client.is_eager for client in world.clients):
        assert moved == len(newcomer.owned)
