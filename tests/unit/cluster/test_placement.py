"""Replicas are spread over racks and nodes, leaders too, and what is impossible is said."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.cluster.facts import NodeFact, PartitionFact
from goqueue.cluster.metadata import PartitionTable
from goqueue.cluster.placement import Load, check_assignment, place
from goqueue.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor

quickly = settings(max_examples=100, derandomize=True, deadline=None, database=None)


def node(number: int, rack: str = "", **fields: bool) -> NodeFact:
    return NodeFact(number, b"i", {}, fields.pop("is_fenced", False), rack=rack, **fields)


def placed(
    nodes: list[NodeFact], count: int, factor: int, table: PartitionTable | None = None
) -> list[tuple[int, ...]]:
    load = Load(table or PartitionTable(), [each.id for each in nodes])
    return place(nodes, load, partition_count=count, replication_factor=factor)


@quickly
@given(
    racks=st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=7),
    factor=st.integers(1, 5),
    count=st.integers(1, 40),
)
def test_replicas_are_on_different_nodes_and_as_many_racks_as_possible(
    racks: list[str], factor: int, count: int
) -> None:
    nodes = [node(number, rack) for number, rack in enumerate(racks)]
    factor = min(factor, len(nodes))
    answer = placed(nodes, count, factor)
    assert len(answer) == count
    # A node without a rack stands alone; it cannot fail together with another.
    kinds = len({rack for rack in racks if rack}) + racks.count("")
    for replicas in answer:
        assert len(set(replicas)) == factor
        theirs = [racks[number] or f"alone {number}" for number in replicas]
        assert len(set(theirs)) == min(factor, kinds)
    leaders = Counter(dict.fromkeys(range(len(nodes)), 0))
    leaders.update(replicas[0] for replicas in answer)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert answer == placed(nodes, count, factor), "the same question has the same answer"


def test_replicas_without_racks_are_even() -> None:
    answer = placed([node(number) for number in range(5)], 100, 3)
    replicas = Counter(number for each in answer for number in each)
    assert set(replicas.values()) == {60}


def test_the_leaders_of_a_node_that_fails_spread_over_the_others() -> None:
    answer = placed([node(number) for number in range(5)], 200, 3)
    second = Counter(replicas[1] for replicas in answer if replicas[0] == 0)
    assert set(second) == {1, 2, 3, 4}
    assert max(second.values()) - min(second.values()) <= 4


def test_new_partitions_go_where_there_is_less() -> None:
    table = PartitionTable()
    for number in range(6):
        table.put(PartitionFact(b"t", number, (1, 2), (1, 2), 1))
    answer = placed([node(1), node(2), node(3)], 4, 1, table)
    assert answer == [(3,), (2,), (3,), (2,)] or Counter(answer)[(3,)] >= 2
    assert (1,) not in answer


def test_a_node_that_is_away_gets_replicas_only_if_there_are_too_few_others() -> None:
    nodes = [node(1), node(2), node(3, is_fenced=True)]
    assert all(3 not in replicas for replicas in placed(nodes, 10, 2))
    answer = placed(nodes, 10, 3)
    assert all(replicas[2] == 3 for replicas in answer)


def test_a_node_that_stops_follows_but_is_not_to_lead() -> None:
    nodes = [node(1, is_stopping=True), node(2)]
    assert placed(nodes, 3, 2) == [(2, 1)] * 3
    assert placed([node(1, is_stopping=True)], 1, 1) == [(1,)]


def test_a_node_that_is_drained_gets_nothing() -> None:
    nodes = [node(1, is_draining=True), node(2), node(3)]
    assert all(1 not in replicas for replicas in placed(nodes, 10, 2))
    with pytest.raises(InvalidReplicationFactor, match=r"has 2 \(1 more are being drained\)"):
        placed(nodes, 1, 3)


@pytest.mark.parametrize(
    ("nodes", "factor", "text"),
    [
        ([node(1)], 0, "from 1 to 15, not 0"),
        ([node(1)], 16, "from 1 to 15, not 16"),
        ([node(1), node(2)], 3, "needs as many nodes, but the cluster has 2; add nodes"),
        ([], 1, "the cluster has 0"),
        ([node(1, is_fenced=True)], 1, "No live node"),
    ],
)
def test_what_is_impossible_is_said(nodes: list[NodeFact], factor: int, text: str) -> None:
    with pytest.raises(InvalidReplicationFactor, match=text):
        placed(nodes, 1, factor)


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        ([], "from 1 to 15 replicas, not 0"),
        (list(range(16)), "not 16"),
        ([1, 2, 1], "twice"),
        ([1, 9, 8], "No node 9, 8 is registered; registered nodes: 1, 2"),
    ],
)
def test_replicas_chosen_by_hand_are_checked(replicas: list[int], text: str) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=text):
        check_assignment(replicas, [2, 1])
    assert check_assignment([2, 1], [1, 2]) == (2, 1)
