"""The beginning of a cluster: what a node that is new does, by what others tell it."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.cluster import Metadata, NodeFact, TopicFact
from goqueue.cluster.bootstrap import (
    Formed,
    Found,
    InitialVoter,
    Join,
    Self,
    Stand,
    Wait,
    first_voters,
    learned,
    listed,
    new_cluster,
    next_step,
    next_voter,
    parse_peers,
    snapshot_of_single_node,
)
from goqueue.model.errors import ForeignCluster, InvalidSettings


def new(number: int, *nodes: int, **fields: object) -> Self:
    """A node that was given a list of nodes."""
    me = Self(number, b"disk%d" % number, f"offer{number}", (), **fields)  # type: ignore[arg-type]
    return listed(me, nodes)


def found_by_name(number: int, *nodes: int) -> Self:
    """A node to which discovery has told of others."""
    return learned(Self(number, b"disk%d" % number, f"offer{number}", ()), nodes)


def answers(*nodes: Self) -> dict[int, Self]:
    return {node.id: node for node in nodes}


def test_the_lowest_of_those_that_answer_stands_when_they_are_most_of_the_list() -> None:
    one, two, three = (new(number, 1, 2, 3) for number in (1, 2, 3))
    assert next_step(one, answers(two, three)) == Stand((1, 2, 3))
    assert next_step(two, answers(one, three)) == Wait(())
    assert next_step(two, answers(three)) == Stand((2, 3))
    assert next_step(three, answers(two)) == Wait((1,))
    assert next_step(one, {}) == Wait((2, 3))


def test_whoever_has_waited_for_long_does_not_leave_it_to_the_lowest() -> None:
    nodes = answers(*(new(number, 1, 2, 3) for number in (1, 3)))
    assert next_step(new(2, 1, 2, 3), nodes, is_polite=False) == Stand((1, 2, 3))
    assert next_step(new(9, 1, 2, 3), nodes, is_polite=False) == Wait((2,))


def test_those_that_may_just_be_starting_are_waited_for_at_first() -> None:
    one, two, three = (new(number, 1, 2, 3) for number in (1, 2, 3))
    assert next_step(one, answers(two), is_patient=True) == Wait((3,))
    assert next_step(one, answers(two, three), is_patient=True) == Stand((1, 2, 3))


@pytest.mark.parametrize(("count", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_new_cluster_takes_most_of_the_list(count: int, quorum: int) -> None:
    numbers = range(1, count + 1)
    nodes = [new(number, *numbers) for number in numbers]
    assert isinstance(next_step(nodes[0], answers(*nodes[1:quorum])), Stand)
    if quorum > 1:
        assert isinstance(next_step(nodes[0], answers(*nodes[1 : quorum - 1])), Wait)


def test_a_node_of_no_list_waits_for_those_that_are_in_it() -> None:
    stranger = new(9, 1, 2, 3)
    assert next_step(stranger, answers(*(new(one, 1, 2, 3) for one in (1, 2, 3)))) == Wait(())
    assert next_step(new(9, 1), answers(new(1, 1, 2, 3))) == Wait(())


def test_lists_that_differ_are_said_and_found_nothing() -> None:
    with pytest.raises(
        InvalidSettings, match="has the list 1,2,3, but node 2 has 1,2,4; configure"
    ):
        next_step(new(1, 1, 2, 3), answers(new(2, 1, 2, 4), new(3, 1, 2, 3)))
    with pytest.raises(InvalidSettings, match="has the list 1, but node 1 has 1,2,3"):
        next_step(new(2, 1), answers(new(1, 1, 2, 3)))


def test_a_node_that_is_told_to_join_founds_nothing_and_is_not_counted() -> None:
    one, two, three = (new(number, 1, 2, 3) for number in (1, 2, 3))
    told = msgspec.structs.replace(two, joins_only=True)
    assert next_step(told, answers(three)) == Wait((1,))
    assert next_step(three, answers(told)) == Wait((1,))
    assert next_step(one, answers(told, three)) == Stand((1, 3))


def test_a_founder_that_has_lost_its_disk_joins_like_a_stranger() -> None:
    formed = Formed("c", (InitialVoter(1, b"disk1"), InitialVoter(2, b"before")), (3,))
    first = msgspec.structs.replace(new(1, 1, 2, 3), formed=formed)
    assert next_step(new(2, 1, 2, 3), answers(first)) == Join(formed)
    assert next_step(new(3, 1, 2, 3), answers(first)) == Join(formed)
    assert next_step(new(9, 1, 9), answers(first)) == Join(formed)
    kept = msgspec.structs.replace(new(2, 1, 2, 3), disk=b"before")
    assert next_step(kept, answers(first)) == Found(formed)


def test_nodes_found_by_name_all_have_to_agree_on_who_there_is() -> None:
    """Discovery may tell each node something else for a while."""
    two, three, four = found_by_name(2, 3, 4), found_by_name(3, 1, 2), found_by_name(4, 2, 3)
    assert next_step(two, answers(three, four)) == Wait(())
    three = found_by_name(3, 2, 4)
    assert next_step(two, answers(three)) == Wait((4,))
    assert next_step(two, answers(three, four)) == Stand((2, 3, 4))


def test_discovery_waits_for_the_number_of_nodes_it_was_told() -> None:
    assert next_step(found_by_name(1), {}, nodes_min=3) == Wait(())
    assert next_step(found_by_name(1), {}) == Stand((1,))


def test_two_clusters_are_not_made_one_by_mistake() -> None:
    one = msgspec.structs.replace(new(1, 1, 2, 3), formed=Formed("a", (InitialVoter(1, b"disk1"),)))
    two = msgspec.structs.replace(new(2, 1, 2, 3), formed=Formed("b", (InitialVoter(2, b"disk2"),)))
    with pytest.raises(ForeignCluster):
        next_step(new(3, 1, 2, 3), answers(one, two))


def test_the_names_in_the_settings_must_agree() -> None:
    named = new(2, 1, 2, 3, configured_id="ours")
    other = new(3, 1, 2, 3, configured_id="theirs")
    with pytest.raises(InvalidSettings, match="ours, theirs"):
        next_step(new(1, 1, 2, 3), answers(named, other))
    formed = msgspec.structs.replace(new(1, 1, 2, 3), formed=Formed("else", ()))
    with pytest.raises(InvalidSettings, match="else, ours"):
        next_step(named, answers(formed))


def test_a_single_node_with_data_is_a_cluster_that_others_join() -> None:
    formed = Formed("c", (InitialVoter(1, b"disk1"),))
    alone = msgspec.structs.replace(new(1), formed=formed)
    assert next_step(new(2, 1, 2, 3), answers(alone, new(3, 1, 2, 3))) == Join(formed)


@pytest.mark.parametrize(
    ("known", "present", "initial_voters", "absent"),
    [
        ((1, 2, 3), (1, 2, 3), (1, 2, 3), ()),
        ((1, 2, 3), (2, 3), (2, 3), (1,)),
        ((1, 2, 3, 4), (2, 3, 4), (2, 3, 4), ()),
        ((1, 2, 3, 4, 5), (1, 3, 5), (1, 3, 5), (2, 4)),
        # Five of seven vote. If those that are there did not, nobody could be elected.
        ((1, 2, 3, 4, 5, 6, 7), (4, 5, 6, 7), (4, 5, 6, 7), (1,)),
    ],
)
def test_whoever_is_there_at_the_beginning_votes_before_those_who_are_not(
    known: tuple[int, ...],
    present: tuple[int, ...],
    initial_voters: tuple[int, ...],
    absent: tuple[int, ...],
) -> None:
    formed = new_cluster("c", known, {one: new(one, *known) for one in present})
    assert formed == Formed(
        "c", tuple(InitialVoter(one, b"disk%d" % one) for one in initial_voters), absent
    )
    assert formed.voters == tuple(sorted(initial_voters + absent))
    assert 2 * len(initial_voters) > len(formed.voters)


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
