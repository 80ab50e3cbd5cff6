"""What every assignor promises, for any members and topics."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.groups import Partitions, assign_range, assign_roundrobin, assign_sticky
from goqueue.groups.assignment.assignors import Assignment, Assignor
from tests.unit.effort import steps_of

ASSIGNORS = [assign_range, assign_roundrobin, assign_sticky]

TOPICS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), min_size=1)
MEMBERS = st.lists(st.sampled_from([f"m{n}" for n in range(8)]), unique=True, min_size=1)
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(8)]),
    st.sets(st.sampled_from("abcdef"), min_size=1).map(sorted),
    min_size=1,
)


@pytest.mark.parametrize("assign", ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, topics=TOPICS)
def test_every_partition_has_exactly_one_owner_that_reads_it(
    assign: Assignor, subscriptions: dict[str, list[str]], topics: dict[str, int]
) -> None:
    _check_complete(assign(subscriptions, topics, {}), subscriptions, topics)


@pytest.mark.parametrize("assign", [assign_roundrobin, assign_sticky])
@given(members=MEMBERS, topics=TOPICS)
def test_members_that_read_the_same_differ_by_one_at_most(
    assign: Assignor, members: list[str], topics: dict[str, int]
) -> None:
    assignment = assign({member: list(topics) for member in members}, topics, {})
    assert _spread(assignment) <= 1


@given(members=MEMBERS, count=st.integers(0, 50))
def test_range_gives_runs_of_each_topic(members: list[str], count: int) -> None:
    members.sort()
    assignment = assign_range({member: ["a"] for member in members}, {"a": count}, {})
    in_order = [number for member in members for _, number in sorted(assignment[member])]
    assert in_order == list(range(count))


def test_range_puts_equal_topics_side_by_side() -> None:
    topics = {"orders": 6, "payments": 6}
    assignment = assign_range({"m1": topics, "m2": topics}, topics, {})
    numbers = {topic: {n for t, n in assignment["m1"] if t == topic} for topic in topics}
    assert numbers["orders"] == numbers["payments"] == {0, 1, 2}


@given(members=MEMBERS, topics=TOPICS)
def test_sticky_moves_the_minimum_when_a_member_joins(
    members: list[str], topics: dict[str, int]
) -> None:
    before = assign_sticky({member: list(topics) for member in members}, topics, {})
    after = assign_sticky({each: list(topics) for each in [*members, "new"]}, topics, before)
    _check_complete(after, {each: list(topics) for each in after}, topics)
    assert _spread(after) <= 1
    assert _moved(before, after) == len(after["new"])
    assert len(after["new"]) == sum(topics.values()) // len(after)


@given(members=MEMBERS, topics=TOPICS)
def test_sticky_moves_only_what_a_leaving_member_had(
    members: list[str], topics: dict[str, int]
) -> None:
    before = assign_sticky({each: list(topics) for each in [*members, "old"]}, topics, {})
    after = assign_sticky({member: list(topics) for member in members}, topics, before)
    assert _spread(after) <= 1
    assert all(before[member] <= after[member] for member in members)


@given(subscriptions=SUBSCRIPTIONS, topics=TOPICS)
def test_sticky_moves_nothing_when_nothing_changes(
    subscriptions: dict[str, list[str]], topics: dict[str, int]
) -> None:
    before = assign_sticky(subscriptions, topics, {})
    assert assign_sticky(subscriptions, topics, before) == before


@settings(max_examples=200)
@given(subscriptions=SUBSCRIPTIONS, topics=TOPICS, data=st.data())
def test_sticky_is_as_even_as_different_subscriptions_allow(
    subscriptions: dict[str, list[str]], topics: dict[str, int], data: st.DataObject
) -> None:
    others = data.draw(SUBSCRIPTIONS)
    before = assign_sticky(others, topics, {})
    after = assign_sticky(subscriptions, topics, before)
    _check_complete(after, subscriptions, topics)
    _check_no_chain_helps(after, subscriptions)


def test_sticky_survives_claims_that_overlap_or_no_longer_exist() -> None:
    both = frozenset({("a", 0), ("a", 1), ("a", 7), ("gone", 0)})
    after = assign_sticky({"m1": ["a"], "m2": ["a"]}, {"a": 2}, {"m1": both, "m2": both})
    assert [len(after[member]) for member in ("m1", "m2")] == [1, 1]


@pytest.mark.parametrize("assign", ASSIGNORS)
def test_nobody_or_nothing_to_assign_is_fine(assign: Assignor) -> None:
    assert assign({}, {"a": 3}, {}) == {}
    assert assign({"m": ["a"]}, {}, {}) == {"m": frozenset()}


@pytest.mark.parametrize("is_uneven", [False, True], ids=["same topics", "different topics"])
def test_sticky_is_fast_enough_to_run_on_every_join(is_uneven: bool) -> None:
    topics = {f"t{n}": 100 for n in range(50)}
    names = list(topics)
    subscriptions = {f"m{n:03}": names[n % 20 :] if is_uneven else names for n in range(100)}
    current = assign_sticky(subscriptions, topics, {})
    joined = {**subscriptions, "new": names}
    after, steps = steps_of(lambda: assign_sticky(joined, topics, current))
    assert steps < 400_000, "each of 5,000 partitions beside each of 100 members is more"
    _check_complete(after, {**subscriptions, "new": names}, topics)


def _check_complete(
    assignment: Assignment, subscriptions: Mapping[str, list[str]], topics: Mapping[str, int]
) -> None:
    given_out = [partition for share in assignment.values() for partition in share]
    read = {topic for wanted in subscriptions.values() for topic in wanted}
    expected = {(topic, n) for topic in read & topics.keys() for n in range(topics[topic])}
    assert len(given_out) == len(expected)
    assert set(given_out) == expected
    for member, share in assignment.items():
        assert {topic for topic, _ in share} <= set(subscriptions[member])


def _check_no_chain_helps(assignment: Assignment, subscriptions: Mapping[str, list[str]]) -> None:
    """Nobody with two more than another can reach it by passing partitions on."""
    for rich, share in assignment.items():
        reached, queue = {rich}, [rich]
        while queue:
            topics = {topic for topic, _ in assignment[queue.pop()]}
            readers = {each for each, wanted in subscriptions.items() if topics & set(wanted)}
            queue += readers - reached
            reached |= readers
        assert all(len(share) - len(assignment[each]) <= 1 for each in reached)


def _spread(assignment: Mapping[str, Partitions]) -> int:
    sizes = [len(share) for share in assignment.values()]
    return max(sizes) - min(sizes)


def _moved(before: Mapping[str, Partitions], after: Mapping[str, Partitions]) -> int:
    return sum(len(share - before.get(member, frozenset())) for member, share in after.items())
