"""Users of a cluster: whoever is removed on one node loses its connections to all."""

from __future__ import annotations

import pytest

from goqueue.loop.promise import promised
from goqueue.model.credentials import KeyKind
from goqueue.model.session import Session
from tests.simulation.cluster_world import ClusterNode, ClusterWorld

PASSWORD = "correct horse"
SOON_MS = 5_000


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    return world


def log_in(
    world: ClusterWorld, node: ClusterNode, user: str, secret: str, ended: list[str]
) -> None:
    """Open a session on a node, as soon as the node knows the user, and watch it."""
    authentication = node.broker.gate.authentication
    world.run_until(lambda: user in node.broker.identities.users)
    session = Session("kafka", client_host="192.0.2.1")
    made = world.wait(authentication.password(session, user, secret))
    authentication.watch(made, lambda: ended.append(f"{user} on {node.number}"))


@pytest.mark.parametrize("how", ["delete", "disable"])
def test_a_user_that_is_removed_loses_its_sessions_on_every_node(
    world: ClusterWorld, how: str
) -> None:
    identities = world.nodes[1].broker.identities
    for user in ("ada", "bob"):
        world.wait(promised(identities.create_user(user, PASSWORD)))
    ended: list[str] = []
    for node in world.nodes.values():
        log_in(world, node, "ada", PASSWORD, ended)
        log_in(world, node, "bob", PASSWORD, ended)
    began_ms = world.clock.now_ms()
    remove = (
        identities.delete_user("ada")
        if how == "delete"
        else identities.disable_user("ada", is_disabled=True)
    )
    world.wait(promised(remove))
    world.run_until(lambda: len(ended) == len(world.nodes))
    assert world.clock.now_ms() - began_ms < SOON_MS
    assert sorted(ended) == [f"ada on {number}" for number in sorted(world.nodes)]


def test_a_key_that_is_deleted_loses_its_sessions_on_every_node(world: ClusterWorld) -> None:
    identities = world.nodes[1].broker.identities
    world.wait(promised(identities.create_user("ada", PASSWORD)))
    keys = [world.wait(promised(identities.create_key("ada", KeyKind.API))) for _ in range(2)]
    ended: list[str] = []
    kept: list[str] = []
    for node in world.nodes.values():
        known = node.broker.identities.keys
        world.run_until(lambda known=known: all(one.key.id in known for one in keys))
        log_in(world, node, "ada", keys[0].secret, ended)
        log_in(world, node, "ada", keys[1].secret, kept)
    began_ms = world.clock.now_ms()
    world.wait(promised(identities.delete_key(keys[0].key.id)))
    world.run_until(lambda: len(ended) == len(world.nodes))
    assert world.clock.now_ms() - began_ms < SOON_MS
    assert kept == []
