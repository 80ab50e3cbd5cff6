"""How much a micro-batch takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.names import TopicPartition
from goqueue.spark.streams.admission import MinimumWait, share, share_bytes

PARTITIONS = [TopicPartition("orders", number) for number in range(5)]


def counts(*numbers: int) -> dict[TopicPartition, int]:
    return dict(zip(PARTITIONS, numbers, strict=False))


def test_a_limit_is_shared_in_proportion() -> None:
    assert share(counts(100, 300), 40) == counts(10, 30)
    assert share(counts(1, 1, 1), 2) == counts(1, 1, 0)
    assert share(counts(5, 3), 100) == counts(5, 3)


@given(
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 1 << 50)), st.integers(1, 1 << 50)
)
def test_a_limit_is_used_up_and_never_exceeded(
    waiting: dict[TopicPartition, int], limit: int
) -> None:
    shares = share(waiting, limit)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= shares[one] <= waiting[one] for one in waiting)


def test_a_limit_of_bytes_goes_by_the_mean_size() -> None:
    sizes = {PARTITIONS[0]: 100.0, PARTITIONS[1]: 1000.0}
    assert share_bytes(counts(10, 10), sizes, 11_000) == counts(10, 10)
    assert share_bytes(counts(10, 10), sizes, 5_500) == counts(5, 5)
    assert share_bytes(counts(10, 10), sizes, 1) == counts(1, 0)
    assert share_bytes(counts(10, 10), {}, 1) == counts(10, 10)


def test_a_batch_waits_until_there_is_enough_or_it_is_late() -> None:
    wait = MinimumWait(records_min=10, delay_ms_max=1000)
    assert wait.is_over(1, now_ms=5_000)  # the first
    assert not wait.is_over(9, now_ms=5_999)
    assert wait.is_over(10, now_ms=5_999)
    assert not wait.is_over(9, now_ms=6_998)
    assert wait.is_over(1, now_ms=6_999)
