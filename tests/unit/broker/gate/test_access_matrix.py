"""Every request of every front end × who sends it, on one node: no cell leaks or acts.

The requests are made from the tables of the front ends, and together they must use every operation
of the gate. So a new operation fails here until it has a request.
"""

from __future__ import annotations

import pytest

from goqueue.broker.gate.operation import OPERATIONS
from tests.simulation.access import grpc_requests
from tests.simulation.access.matrix import (
    COLUMNS,
    Allowed,
    check_exact_rules,
    check_other_tenant,
    check_refusals,
    operations_used,
    send_allowed,
)
from tests.simulation.access.requests import FRONT_ENDS, Case
from tests.simulation.access.scene import Scene
from tests.unit.broker.node import Node

# No request of a front end uses these.
NOT_OFFERED = {
    "journeys.count_events",  # only for nodes, as parts of others
    "journeys.find_events",
    "node.free_bytes",
    "node.waits_for",  # used by the front ends themselves, before the node is ready
    "records.bounds",
    "share_groups.acknowledge",  # in a session only, which is of who opened it
    "share_groups.delete",  # by the request that deletes groups of any kind
    "share_groups.forget",  # parts of others
    "share_groups.give_back",
    "share_groups.release",  # when a session ends
    "tenants.account",  # only for users of tenants
    "tenants.usage_of_nodes",  # a part of another one
}
DENIED_CODES = {29, 30, 31, 53}  # of Kafka


def scene_of_one_node() -> tuple[Node, Scene]:
    node = Node(
        groups__initial_rebalance_delay_ms="0",
        groups__offsets_partitions="1",
        transactions__state_partitions="1",
        delivery__partitions="1",
        schedules__partitions="1",
        security__audit="on",
    )
    return node, Scene(node, [node.broker])


@pytest.fixture(scope="module")
def allowed() -> dict[str, dict[Case, Allowed]]:
    """The outcomes of all requests of who may do everything, by front end."""
    with operations_used() as used:
        found = {}
        for one in FRONT_ENDS:
            node, scene = scene_of_one_node()
            found[one] = send_allowed(scene, one, node.broker)
    OFFERED.update(used)
    return found


OFFERED: set[str] = set()


@pytest.mark.parametrize("column", COLUMNS)
def test_who_is_not_allowed_learns_nothing_and_does_nothing(column: str) -> None:
    node, scene = scene_of_one_node()
    assert check_refusals(scene, COLUMNS[column], node.broker) == []


def test_another_tenant_learns_nothing_and_changes_nothing() -> None:
    node, scene = scene_of_one_node()
    assert check_other_tenant(scene, node.broker) == []


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_who_is_allowed_is_not_refused(
    front_end: str, allowed: dict[str, dict[Case, Allowed]]
) -> None:
    for case, cell in allowed[front_end].items():
        outcome = cell.outcome
        if isinstance(outcome, frozenset):
            assert not outcome & DENIED_CODES, str(case)
        else:
            assert outcome not in (401, 403), str(case)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_rules_for_what_is_checked_are_enough(
    front_end: str, allowed: dict[str, dict[Case, Allowed]]
) -> None:
    node, scene = scene_of_one_node()
    assert check_exact_rules(scene, allowed[front_end], node.broker) == []


def test_every_call_of_grpc_has_a_request() -> None:
    assert set(grpc_requests.REQUESTS) == set(grpc_requests.UNARY)
    assert set(grpc_requests.STREAMS) == set(grpc_requests.STREAMING)


def test_streams_of_grpc_do_something_for_who_is_allowed(
    allowed: dict[str, dict[Case, Allowed]],
) -> None:
    """Otherwise those who are refused would prove nothing."""
    outcomes = {case.name: cell.outcome for case, cell in allowed["grpc"].items()}
    assert {outcomes[name] for name in grpc_requests.STREAMS} == {200}


def test_every_operation_has_a_request(allowed: dict[str, dict[Case, Allowed]]) -> None:
    assert set(OPERATIONS) - OFFERED == NOT_OFFERED, "give new operations a request in the matrix"
