"""Users and keys on three nodes: known everywhere, changed at two places at once, ended soon."""

from __future__ import annotations

import pytest

from goqueue.broker.gate.areas.users import UsersArea
from goqueue.broker.identities.key_uses import COLLECT_MS
from goqueue.model.credentials import KeyKind
from goqueue.model.errors import GoQueueError
from goqueue.model.session import NOBODY, Session
from tests.simulation.cluster_world import ClusterWorld

CLIENT = Session("http", client_host="10.0.0.7")
ENDED_MS = 5_000  # within which a session must end on every node


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld(1)
    world.run_until(world.is_whole)
    return world


def users(world: ClusterWorld, number: int) -> UsersArea:
    return world.nodes[number].broker.gate.users


def key(world: ClusterWorld, number: int, kind: KeyKind = KeyKind.API) -> tuple[str, str]:
    made = users(world, number).create_key(
        NOBODY, user="alice", kind=kind, expires_ms=0, description=""
    )
    found = world.wait(made)
    return found.key.id, found.secret


def test_a_key_of_one_node_is_good_on_all_and_ends_on_all(world: ClusterWorld) -> None:
    world.wait(users(world, 1).create(NOBODY, user="alice", password=None))
    key_id, secret = key(world, 1)
    gates = [node.broker.gate for node in world.nodes.values()]
    world.run_until(
        lambda: all(key_id in node.broker.identities.keys for node in world.nodes.values())
    )
    sessions = [gate.authentication.api_key(CLIENT, secret) for gate in gates]
    assert {one.principal for one in sessions} == {"User:alice"}
    ended: list[int] = []
    for number, (gate, session) in enumerate(zip(gates, sessions, strict=True)):
        gate.authentication.watch(session, lambda number=number: ended.append(number))
    world.wait(users(world, 2).delete_key(NOBODY, key_id=key_id))
    world.run_for(ENDED_MS)
    assert sorted(ended) == [0, 1, 2]
    assert not any(
        gate.authentication.is_valid(session) for gate, session in zip(gates, sessions, strict=True)
    )


def test_an_access_key_has_the_same_secret_on_all_nodes(world: ClusterWorld) -> None:
    world.wait(users(world, 1).create(NOBODY, user="alice", password=None))
    made = [key(world, number, KeyKind.ACCESS) for number in world.nodes]
    world.run_for(ENDED_MS)
    for key_id, secret in made:
        for node in world.nodes.values():
            signer = node.broker.gate.authentication.signer(CLIENT, key_id)
            assert signer is not None
            assert signer.secret == secret


def test_the_last_use_of_a_key_reaches_the_other_nodes(world: ClusterWorld) -> None:
    world.wait(users(world, 1).create(NOBODY, user="alice", password=None))
    key_id, secret = key(world, 1)
    world.run_for(ENDED_MS)
    world.nodes[3].broker.gate.authentication.api_key(CLIENT, secret)
    used_ms = users(world, 3).show_key(NOBODY, key_id=key_id).last_used_ms
    assert used_ms > 0
    world.run_for(COLLECT_MS + ENDED_MS)
    assert users(world, 1).show_key(NOBODY, key_id=key_id).last_used_ms == used_ms


def test_changes_at_two_nodes_at_once_are_both_made(world: ClusterWorld) -> None:
    world.wait(users(world, 1).create(NOBODY, user="alice", password=None))
    world.run_for(ENDED_MS)
    changes = [
        users(world, 1).set_password(NOBODY, user="alice", password="first password"),
        users(world, 2).disable(NOBODY, user="alice"),
        users(world, 3).set_password(NOBODY, user="alice", password="third password"),
    ]
    for change in changes:
        world.wait(change)
    world.run_for(ENDED_MS)
    shown = [users(world, number).show(NOBODY, user="alice") for number in world.nodes]
    assert len(set(shown)) == 1
    assert shown[0].is_disabled
    assert len(shown[0].mechanisms) == 2


def test_two_nodes_create_one_user_once(world: ClusterWorld) -> None:
    made = [users(world, number).create(NOBODY, user="bob", password=None) for number in (1, 2, 3)]
    outcomes: list[str] = []
    for one in made:
        try:
            world.wait(one)
            outcomes.append("created")
        except GoQueueError as error:
            outcomes.append(error.code)
    assert sorted(outcomes) == ["created", "user_exists", "user_exists"]
