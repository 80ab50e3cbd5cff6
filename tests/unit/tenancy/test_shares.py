"""Shares of a quota: never more than the limit, given to those who need it, also after failures."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.tenancy.quotas import Bucket
from goqueue.tenancy.shares import (
    FLOOR,
    LEARNING_MS_MAX,
    SILENT_MS_MAX,
    Count,
    Demand,
    Report,
    Shares,
    divide,
    least_share,
    longest_wait_ms,
)

quickly = settings(max_examples=50, derandomize=True, deadline=None, database=None)
NODES = [1, 2, 3]
ENTITY = (("user", "alice"),)


def demand(limit: float = 100, *, rate: float = 0, short: bool = False, held: float = 0) -> Report:
    return Report((Demand("producer_byte_rate", ENTITY, limit, rate, short, held),))


def share_of(shares: Shares, node: int, report: Report, now_ms: int) -> float:
    return shares.report(node, report, nodes=NODES, now_ms=now_ms).shares[0]


def test_the_only_node_with_demand_gets_nearly_everything() -> None:
    shares = Shares(0)
    now_ms = LEARNING_MS_MAX
    assert share_of(shares, 1, demand(short=True), now_ms) >= 98


def test_nodes_whose_clients_wait_divide_the_limit_equally() -> None:
    assert divide(90, {1: 1e9, 2: 1e9, 3: 1e9}, node_count=3) == {1: 30, 2: 30, 3: 30}


def test_a_node_that_needs_less_gets_what_it_needs() -> None:
    shares = divide(90, {1: 10, 2: 1e9, 3: 1e9}, node_count=3)
    assert shares == {1: 10, 2: 40, 3: 40}


def test_what_nobody_needs_is_given_to_all() -> None:
    shares = divide(90, {1: 0, 2: 0, 3: 30}, node_count=3)
    assert shares == {1: 20, 2: 20, 3: 50}


def test_a_share_moves_only_after_its_holder_has_reported() -> None:
    shares = Shares(0)
    now_ms = LEARNING_MS_MAX
    first = share_of(shares, 1, demand(short=True), now_ms)
    second = share_of(shares, 2, demand(short=True), now_ms)
    assert first + second <= 100
    less = share_of(shares, 1, demand(short=True, held=first), now_ms + 1_000)
    more = share_of(shares, 2, demand(short=True, held=second), now_ms + 1_000)
    assert less < first
    assert 45 < more <= 100 - less


def test_a_silent_node_loses_its_share() -> None:
    shares = Shares(0)
    share_of(shares, 1, demand(short=True), LEARNING_MS_MAX)
    later_ms = LEARNING_MS_MAX + SILENT_MS_MAX + 1
    assert share_of(shares, 2, demand(short=True), later_ms) >= 98


def test_a_node_that_left_the_cluster_loses_its_share_at_once() -> None:
    shares = Shares(0)
    share_of(shares, 9, demand(short=True), LEARNING_MS_MAX)
    assert share_of(shares, 2, demand(short=True), LEARNING_MS_MAX) >= 98


def test_a_new_controller_grants_nothing_that_others_may_hold() -> None:
    shares = Shares(0)
    assert share_of(shares, 1, demand(short=True, held=0), 0) <= 100 / 3
    assert share_of(shares, 2, demand(short=True, held=60), 10) <= 67
    assert share_of(shares, 3, demand(held=7), 20) <= 100


def test_counts_of_other_nodes_are_added() -> None:
    shares = Shares(0)

    def elsewhere(node: int, value: float, now_ms: int) -> float:
        report = Report((), (Count("connections", ENTITY, value),))
        return shares.report(node, report, nodes=NODES, now_ms=now_ms).elsewhere[0]

    assert elsewhere(1, 5, 0) == 0
    assert elsewhere(2, 3, 0) == 5
    assert elsewhere(1, 6, 100) == 3
    assert elsewhere(1, 6, SILENT_MS_MAX + 1_200) == 0


reports = st.lists(
    st.tuples(st.sampled_from(NODES), st.integers(0, 1_500), st.floats(0, 200), st.booleans()),
    min_size=1,
    max_size=60,
)


@quickly
@given(reports=reports)
def test_what_is_granted_exceeds_the_limit_by_the_least_shares_at_most(
    reports: list[tuple[int, int, float, bool]],
) -> None:
    shares, now_ms = Shares(0), LEARNING_MS_MAX
    held: dict[int, tuple[float, int]] = {}
    for node, pause_ms, rate, is_short in reports:
        now_ms += pause_ms
        mine, _ = held.get(node, (0.0, 0))
        granted = share_of(shares, node, demand(rate=rate, short=is_short, held=mine), now_ms)
        held[node] = (granted, now_ms)
        fresh = [one for one, at_ms in held.values() if now_ms - at_ms < SILENT_MS_MAX]
        assert sum(fresh) <= 100 * (1 + FLOOR) + 1e-6


# A simulation of nodes, clients and the controller


class Node:
    """A node with clients that send as much as they want, as long as they need not wait."""

    def __init__(self, number: int, limit: float) -> None:
        self.number = number
        self.bucket = Bucket(least_share(limit, len(NODES)), 0)
        self.held = 0.0
        self.passed = 0
        self._blocked_until_ms = 0

    def send(self, wanted_per_ms: float, batch: int, now_ms: int, rng: random.Random) -> None:
        if now_ms >= self._blocked_until_ms and rng.random() < wanted_per_ms / batch:
            self.passed += batch
            self._blocked_until_ms = now_ms + self.bucket.take(batch, now_ms)

    def report(self, shares: Shares, limit: float, now_ms: int) -> None:
        bucket = self.bucket
        report = demand(limit, rate=bucket.used, short=bucket.is_short, held=self.held)
        bucket.used, bucket.is_short = 0, False
        self.held = share_of(shares, self.number, report, now_ms)
        bucket.change_rate(self.held, now_ms)
        bucket.wait_ms_max = longest_wait_ms(self.held, limit, len(NODES))


@pytest.mark.parametrize(
    "wanted",
    [
        (3.0, 3.0, 3.0),  # times the limit
        (3.0, 0.0, 0.0),
        (0.5, 3.0, 0.0),
        (0.3, 0.3, 3.0),
        (3.0, 0.05, 0.05),
    ],
)
def test_three_nodes_hold_a_quota_within_five_percent(wanted: tuple[float, ...]) -> None:
    limit, seconds, warm = 10_000_000, 20, 4
    rng = random.Random(sum(wanted))
    shares = Shares(-LEARNING_MS_MAX)
    nodes = [Node(number, limit) for number in NODES]
    before = 0
    for now_ms in range(seconds * 1_000):
        for node, factor in zip(nodes, wanted, strict=True):
            node.send(factor * limit / 1_000, 16_384, now_ms, rng)
            if now_ms % 1_000 == node.number * 300:
                node.report(shares, limit, now_ms)
        if now_ms == warm * 1_000:
            before = sum(node.passed for node in nodes)
    rate = (sum(node.passed for node in nodes) - before) / (seconds - warm)
    assert 0.95 * limit <= rate <= 1.05 * limit, f"{rate / limit:.3f} of the limit"
