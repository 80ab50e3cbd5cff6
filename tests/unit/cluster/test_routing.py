"""A key whose partition changes: its old messages are finished before its new ones begin."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.cluster.facts import RoutingFact
from goqueue.cluster.routing import Need, ended_at, grown, is_passed, needs_of
from goqueue.model.key_hash import partition_of_key

quickly = settings(max_examples=150, derandomize=True, deadline=None, database=None)
TOPIC = b"t" * 16


def grown_to(counts: list[int], ends: list[list[int]]) -> RoutingFact:
    """A topic that had so many partitions one after another, and ended with such offsets."""
    routing: RoutingFact | None = None
    for count, told in zip(counts, ends, strict=True):
        routing = ended_at(grown(routing, TOPIC, count), dict(enumerate(told)))
    assert routing is not None
    return routing


def test_a_topic_that_never_grew_asks_for_nothing() -> None:
    assert needs_of(None, key=b"k", partition=0, offset=5, partition_count=1) == []


def test_a_message_without_a_key_waits_for_nobody() -> None:
    routing = grown_to([1], [[10]])
    assert needs_of(routing, key=None, partition=1, offset=0, partition_count=2) == []


def test_the_old_partition_comes_first_up_to_where_old_routing_ended() -> None:
    routing = grown_to([1], [[10]])
    key = next(bytes([one]) for one in range(99) if partition_of_key(bytes([one]), 2) == 1)
    needs = needs_of(routing, key=key, partition=1, offset=0, partition_count=2)
    assert needs == [Need(0, 10)]
    assert not needs[0].is_met(9)
    assert needs[0].is_met(10)


def test_a_key_that_stays_waits_for_nobody() -> None:
    routing = grown_to([1], [[10]])
    key = next(bytes([one]) for one in range(99) if partition_of_key(bytes([one]), 2) == 0)
    for offset in (0, 9, 10, 500):
        assert needs_of(routing, key=key, partition=0, offset=offset, partition_count=2) == []


def test_nothing_is_met_before_the_leader_has_told_the_end() -> None:
    routing = grown(None, TOPIC, 1)
    key = next(bytes([one]) for one in range(99) if partition_of_key(bytes([one]), 2) == 1)
    (need,) = needs_of(routing, key=key, partition=1, offset=0, partition_count=2)
    assert not need.is_met(10**9)
    assert not is_passed(routing, lambda number: 10**9)
    told = ended_at(routing, {0: 7})
    assert is_passed(told, lambda number: 7)
    assert not is_passed(told, lambda number: 6)


def test_the_first_word_about_an_end_counts() -> None:
    routing = ended_at(grown(None, TOPIC, 2), {0: 7})
    assert ended_at(routing, {0: 99}) is routing
    assert ended_at(routing, {0: 99, 1: 3}).ended[0].ends == (7, 3)


@quickly
@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(1, 9), min_size=2, max_size=5, unique=True).map(sorted),
)
def test_obeying_the_needs_keeps_the_order_of_every_key(seed: int, counts: list[int]) -> None:
    """Send in every epoch, then hand out at random whatever the needs allow."""
    random = Random(seed)
    keys = [bytes([number]) for number in range(6)]
    logs: list[list[tuple[bytes, int]]] = [[] for _ in range(counts[-1])]
    ends, serial = [], 0
    for count in counts:
        for _ in range(random.randint(0, 12)):
            key = random.choice(keys)
            logs[partition_of_key(key, count)].append((key, serial))
            serial += 1
        ends.append([len(log) for log in logs[:count]])
    routing = grown_to(counts[:-1], ends[:-1])
    finished = [0] * counts[-1]
    seen: dict[bytes, list[int]] = {}
    while any(finished[number] < len(log) for number, log in enumerate(logs)):
        ready = []
        for number, log in enumerate(logs):
            offset = finished[number]
            if offset < len(log):
                needs = needs_of(
                    routing,
                    key=log[offset][0],
                    partition=number,
                    offset=offset,
                    partition_count=counts[-1],
                )
                if all(need.is_met(finished[need.partition]) for need in needs):
                    ready.append(number)
        assert ready, "the partitions wait for each other"
        number = random.choice(ready)
        key, sent = logs[number][finished[number]]
        seen.setdefault(key, []).append(sent)
        finished[number] += 1
    assert all(order == sorted(order) for order in seen.values())
    assert is_passed(routing, finished.__getitem__)
