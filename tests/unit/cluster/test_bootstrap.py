"""The beginning of a cluster: the same nodes form one, whatever fails and however often."""

from __future__ import annotations

import contextlib
from random import Random

import msgspec
import pytest

from goqueue.cluster import Metadata, NodeFact, TopicFact
from goqueue.cluster.bootstrap import (
    Formed,
    Found,
    Founder,
    Join,
    Self,
    Wait,
    first_voters,
    learned,
    next_step,
    next_voter,
    parse_peers,
    snapshot_of_single_node,
)
from goqueue.model.errors import ForeignCluster, InvalidSettings


def new(number: int, *known: int, **fields: str) -> Self:
    return learned(Self(number, b"disk%d" % number, f"offer{number}", (), **fields), known)


def answers(*nodes: Self) -> dict[int, Self]:
    return {node.id: node for node in nodes}


def test_the_lowest_founds_when_all_have_answered_and_the_others_take_it_over() -> None:
    nodes = [new(number, 1, 2, 3) for number in (1, 2, 3)]
    step = next_step(nodes[0], answers(*nodes))
    founders = tuple(Founder(number, b"disk%d" % number) for number in (1, 2, 3))
    assert step == Found(Formed("offer1", founders))
    assert next_step(nodes[1], answers(*nodes)) == Wait(())
    assert isinstance(step, Found)
    first = msgspec.structs.replace(nodes[0], formed=step.formed)
    assert next_step(nodes[1], answers(first)) == step


def test_nobody_founds_before_all_have_answered() -> None:
    nodes = [new(number, 1, 2, 3) for number in (1, 2, 3)]
    assert next_step(nodes[0], answers(nodes[1])) == Wait((3,))


def test_a_founder_that_has_lost_its_disk_joins_like_a_stranger() -> None:
    formed = Formed("c", (Founder(1, b"disk1"), Founder(2, b"before"), Founder(3, b"disk3")))
    first = msgspec.structs.replace(new(1, 1, 2, 3), formed=formed)
    assert next_step(new(2, 1, 2, 3), answers(first)) == Join(formed)
    assert next_step(new(3, 1, 2, 3), answers(first)) == Found(formed)
    assert next_step(new(9, 1, 9), answers(first)) == Join(formed)


def test_nodes_that_know_of_different_nodes_wait_for_each_other() -> None:
    """Discovery may tell each node something else for a while."""
    two, three, four = new(2, 2, 3, 4), new(3, 1, 2, 3), new(4, 2, 3, 4)
    assert next_step(two, answers(three, four)) == Wait((3,))


def test_discovery_waits_for_the_number_of_nodes_it_was_told() -> None:
    assert next_step(new(1, 1), {}, nodes_min=3) == Wait(())
    assert isinstance(next_step(new(1, 1), {}), Found)


def test_two_clusters_are_not_made_one_by_mistake() -> None:
    one = msgspec.structs.replace(new(1, 1, 2, 3), formed=Formed("a", (Founder(1, b"disk1"),)))
    two = msgspec.structs.replace(new(2, 1, 2, 3), formed=Formed("b", (Founder(2, b"disk2"),)))
    with pytest.raises(ForeignCluster):
        next_step(new(3, 1, 2, 3), answers(one, two))


def test_the_name_in_the_settings_is_used_and_must_agree() -> None:
    named = new(2, 1, 2, 3, configured_id="ours")
    step = next_step(new(1, 1, 2, 3), answers(named, new(3, 1, 2, 3)))
    assert isinstance(step, Found)
    assert step.formed.cluster_id == "ours"
    other = new(3, 1, 2, 3, configured_id="theirs")
    with pytest.raises(InvalidSettings, match="ours, theirs"):
        next_step(new(1, 1, 2, 3), answers(named, other))
    formed = msgspec.structs.replace(new(1, 1, 2, 3), formed=Formed("else", ()))
    with pytest.raises(InvalidSettings, match="else, ours"):
        next_step(named, answers(formed))


def test_a_single_node_with_data_is_a_cluster_that_others_join() -> None:
    alone = msgspec.structs.replace(new(1), formed=Formed("c", (Founder(1, b"disk1"),)))
    assert next_step(new(2, 1, 2, 3), answers(alone, new(3, 1, 2, 3))) == Join(alone.formed)


@pytest.mark.parametrize(("count", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (9, 5)])
def test_voters_are_few_and_odd(count: int, voters: int) -> None:
    assert first_voters(range(10, 10 + count)) == tuple(range(10, 10 + voters))


def test_a_cluster_that_grows_gets_its_second_voter_only_with_a_third_in_sight() -> None:
    nodes = {number: NodeFact(number, b"", {}, False) for number in (1, 2)}
    assert next_voter({1}, nodes) is None
    nodes[3] = NodeFact(3, b"", {}, True)
    assert next_voter({1}, nodes) is None, "the third is not alive"
    nodes[3] = NodeFact(3, b"", {}, False)
    assert next_voter({1}, nodes) == 2
    assert next_voter({1, 2}, nodes) == 3
    assert next_voter({1, 2, 3}, nodes) is None


def test_peers_are_read_as_they_are_written() -> None:
    assert parse_peers("1@a:1,2@[::1]:2") == {1: "a:1", 2: "[::1]:2"}
    assert parse_peers("") == {}


def test_the_facts_of_a_single_node_are_the_first_of_its_cluster() -> None:
    alone = Metadata()
    alone.apply(TopicFact(b"t" * 16, "orders", 2, {"retention_ms": "1"}))
    cluster = Metadata()
    cluster.restore(snapshot_of_single_node(alone, node=1, cluster_id="c"))
    assert cluster.topic("orders") == alone.topic("orders")
    assert [fact.in_sync for fact in cluster.partitions] == [(1,), (1,)]
    assert cluster.cluster is not None
    assert cluster.cluster.cluster_id == "c"
    assert alone.partitions.count == 0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_nodes_that_all_answer_become_one_cluster(count: int) -> None:
    nodes = {number: new(number, *range(count)) for number in range(count)}
    joined = set()
    for _ in range(2):
        for number, node in nodes.items():
            step = next_step(node, {one: nodes[one] for one in nodes if one != number})
            if isinstance(step, Found):
                nodes[number] = msgspec.structs.replace(node, formed=step.formed)
            elif isinstance(step, Join):
                joined.add(number)
    voters = set(first_voters(range(count)))
    formed = {node.formed for node in nodes.values() if node.formed is not None}
    assert len(formed) == 1
    assert {number for number, node in nodes.items() if node.formed is not None} == voters
    assert joined == set(nodes) - voters


@pytest.mark.parametrize("seed", range(300))
def test_never_two_clusters_with_a_majority(seed: int) -> None:
    """Nodes learn of each other at random, restart, lose disks, and use answers that are old."""
    random = Random(seed)
    numbers = range(1, random.randint(3, 6))
    made = 0

    def fresh(number: int) -> Self:
        nonlocal made
        made += 1
        return learned(Self(number, b"disk%d" % made, f"offer{made}", ()), [number])

    nodes = {number: fresh(number) for number in numbers}
    heard: dict[int, dict[int, Self]] = {number: {} for number in numbers}
    for _ in range(400):
        number = random.choice(numbers)
        what = random.random()
        if what < 0.1:
            nodes[number] = learned(nodes[number], random.sample(numbers, 1))
        elif what < 0.6:
            other = random.choice(numbers)
            nodes[number] = learned(nodes[number], [other])
            heard[number][other] = nodes[other]
        elif what < 0.62:
            nodes[number], heard[number] = fresh(number), {}
        elif nodes[number].formed is None:
            # Whoever founded without a majority, because of lost disks, is refused for good.
            with contextlib.suppress(ForeignCluster):
                step = next_step(nodes[number], heard[number], nodes_min=len(numbers) // 2 + 1)
                if isinstance(step, Found):
                    nodes[number] = msgspec.structs.replace(nodes[number], formed=step.formed)
        working = set()
        for node in nodes.values():
            formed = node.formed
            if formed is not None:
                there = [one for one in nodes.values() if one.formed == formed]
                if 2 * len(there) > len(formed.founders):
                    working.add(formed)
        assert len(working) <= 1
