"""Token buckets hold their rate whatever is taken, and clients get the most specific limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.model.errors import InvalidQuota
from goqueue.model.quotas import LIMITS, check_limits, checked_entity
from goqueue.tenancy.quotas import WAIT_MS_MAX, Bucket, BucketKey, QuotaTable

quickly = settings(max_examples=100, derandomize=True, deadline=None, database=None)

BYTES = "producer_byte_rate"


# Buckets


def test_a_bucket_holds_the_tokens_of_one_second() -> None:
    bucket = Bucket(1_000, now_ms=0)
    assert bucket.take(1_000, 0) == 0
    assert bucket.take(1, 0) == 1
    assert bucket.wait_ms(1) == 0


def test_a_large_batch_passes_and_the_next_waits_until_its_debt_is_paid() -> None:
    bucket = Bucket(1_000, now_ms=0)
    assert bucket.take(11_000, 0) == 10_000
    assert bucket.wait_ms(4_000) == 6_000
    assert bucket.wait_ms(10_000) == 0


def test_rates_below_one_per_second_are_exact() -> None:
    bucket = Bucket(0.5, now_ms=0)
    assert bucket.take(1, 0) == 1_000  # half a token was there
    assert bucket.wait_ms(1_000) == 0
    assert bucket.take(1, 1_000) == 2_000


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(1_000, now_ms=5_000)
    assert bucket.take(2_000, 5_000) == 1_000
    assert bucket.wait_ms(4_000) == 1_000
    assert bucket.wait_ms(5_500) == 500


def test_debt_survives_a_change_of_the_rate() -> None:
    bucket = Bucket(1_000, now_ms=0)
    bucket.take(3_000, 0)
    bucket.change_rate(100, 0)
    assert bucket.wait_ms(0) == 20_000


def test_no_client_is_told_to_wait_for_longer_than_an_hour() -> None:
    bucket = Bucket(1, now_ms=0)
    assert bucket.take(1 << 40, 0) == WAIT_MS_MAX
    assert bucket.wait_ms(WAIT_MS_MAX) == WAIT_MS_MAX


steps = st.lists(
    st.tuples(st.integers(0, 3_000), st.integers(1, 100_000)), min_size=1, max_size=200
)


@quickly
@given(rate=st.floats(0.1, 1e7), steps=steps)
def test_no_sequence_of_batches_exceeds_rate_times_time_plus_burst_plus_one(
    rate: float, steps: list[tuple[int, int]]
) -> None:
    """A client that waits as told gets no more, wherever it begins to count."""
    bucket, now_ms = Bucket(rate, now_ms=0), 0
    taken: list[tuple[int, int]] = []
    for pause_ms, size in steps:
        now_ms += pause_ms
        if not bucket.wait_ms(now_ms):
            bucket.take(size, now_ms)
            taken.append((now_ms, size))
    exact = max(1, round(rate * 1_000)) / 1_000  # what the integers hold
    for first in range(len(taken)):
        since = taken[first][0]
        for last in range(first, len(taken)):
            total = sum(size for _, size in taken[first : last + 1])
            most = exact * (taken[last][0] - since) / 1_000 + exact + taken[last][1]
            assert total <= most + 1


@quickly
@given(rate=st.integers(1, 10**7), sizes=st.lists(st.integers(1, 10**6), min_size=1))
def test_a_client_that_waits_as_told_gets_its_whole_rate(rate: int, sizes: list[int]) -> None:
    bucket, now_ms = Bucket(rate, now_ms=0), 0
    bucket.take(rate, 0)  # the burst
    for size in sizes:
        wait_ms = bucket.take(size, now_ms)
        if wait_ms == WAIT_MS_MAX:
            return
        now_ms += wait_ms
    assert now_ms <= math.ceil(sum(sizes) * 1_000 / rate) + len(sizes)
    assert now_ms >= sum(sizes) * 1_000 / rate - 1


# Precedence


def table(**quotas: float) -> QuotaTable:
    """Quotas by entities such as `user_alice__client_a`; an empty name is the default."""
    kinds = {"user": "user", "client": "client-id", "tenant": "tenant", "ip": "ip"}
    entries = []
    for text, value in quotas.items():
        parts = [part.partition("_") for part in text.split("__")]
        names = {kinds[kind]: name for kind, _, name in parts}
        entries.append((checked_entity(names), {BYTES: value}))
    return QuotaTable(entries)


IN_ORDER = [
    "user_alice__client_a",
    "user_alice__client_",
    "user_alice",
    "user___client_a",
    "user___client_",
    "user_",
    "client_a",
    "client_",
]


@pytest.mark.parametrize("place", range(len(IN_ORDER)))
def test_the_most_specific_entity_wins_as_in_kafka(place: int) -> None:
    names = [one.replace("user___client", "user___client") for one in IN_ORDER[place:]]
    entries = {}
    for value, name in enumerate(names):
        user = {"user": name.partition("user_")[2].partition("__")[0]} if "user" in name else {}
        client = {"client-id": name.partition("client_")[2]} if "client" in name else {}
        entries[checked_entity({**user, **client})] = {BYTES: float(value + 1)}
    [applied] = QuotaTable(entries.items()).of_client("alice", "a", "")
    assert applied.value == 1


def test_a_default_is_a_limit_for_each_name() -> None:
    quotas = table(user_=10)
    [alice] = quotas.of_client("alice", "a", "")
    [bob] = quotas.of_client("bob", "a", "")
    assert alice.key == BucketKey(BYTES, (("user", "alice"),))
    assert bob.key != alice.key


def test_clients_of_a_user_share_the_limit_of_the_user() -> None:
    quotas = table(user_alice=10)
    [one] = quotas.of_client("alice", "a", "")
    [other] = quotas.of_client("alice", "b", "")
    assert one.key == other.key
    assert not quotas.uses_client_ids


def test_precedence_is_for_each_limit_by_itself() -> None:
    quotas = QuotaTable(
        [
            (checked_entity({"user": "alice", "client-id": "a"}), {BYTES: 1.0}),
            (checked_entity({"user": "alice"}), {BYTES: 2.0, "request_rate": 3.0}),
        ]
    )
    found = {one.key.limit: one.value for one in quotas.of_client("alice", "a", "")}
    assert found == {BYTES: 1, "request_rate": 3}
    assert quotas.uses_client_ids


def test_the_limits_of_a_tenant_apply_besides_those_of_its_users() -> None:
    quotas = table(user_alice=10, tenant_acme=5, tenant_=7)
    assert [one.value for one in quotas.of_client("alice", "", "acme")] == [10, 5]
    assert [one.value for one in quotas.of_client("alice", "", "other")] == [10, 7]
    assert quotas.tenant_limit("acme", BYTES) == 5
    assert quotas.tenant_limit("", BYTES) == 7


# Validation


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"group": "a"},
        {"user": "a", "ip": "b"},
        {"tenant": "a", "client-id": "b"},
        {"user": "x" * 256},
    ],
)
def test_entities_that_cannot_be_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(InvalidQuota):
        checked_entity(names)


def test_unknown_limits_are_refused_with_the_list_of_known_ones() -> None:
    with pytest.raises(InvalidQuota) as caught:
        check_limits(checked_entity({"user": "a"}), {"producer_bytes": 1})
    assert all(name in str(caught.value) for name in LIMITS)


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        (BYTES, 0),
        (BYTES, -1),
        (BYTES, 1.5),
        (BYTES, math.nan),
        (BYTES, math.inf),
        (BYTES, 2.0**60),
        ("connections", 1.5),
        ("connections", -1),
        ("connection_creation_rate", 1),
        ("topics", 1),
    ],
)
def test_values_that_cannot_be_are_refused(limit: str, value: float) -> None:
    with pytest.raises(InvalidQuota):
        check_limits(checked_entity({"user": "a"}), {limit: value})


def test_limits_can_be_removed_and_counts_may_be_zero() -> None:
    check_limits(checked_entity({"tenant": "a"}), {BYTES: None, "topics": 0, "request_rate": 0.5})
