from __future__ import annotations

import pytest

from goqueue.cli.commands.bench.figures import (
    BYTES_MIN,
    Arrivals,
    MessagesWrong,
    due_ns,
    histogram,
    latency_row,
    numbered,
    percentile,
    rate_row,
    read_numbered,
)


def test_a_message_carries_its_number_and_when_it_was_due() -> None:
    value = numbered(7, 123_456_789, b"x" * 10)
    assert len(value) == BYTES_MIN + 10
    assert read_numbered(value) == (7, 123_456_789)


@pytest.mark.parametrize("value", [None, b"", b"gqb1", b"another message of the topic"])
def test_other_messages_of_a_topic_are_not_counted(value: bytes | None) -> None:
    assert read_numbered(value) is None


def test_missing_messages_are_an_error_and_duplicates_are_counted() -> None:
    arrivals = Arrivals(3)
    assert arrivals.add(0)
    assert not arrivals.add(0)
    assert arrivals.duplicates == 1
    with pytest.raises(MessagesWrong, match=r"2 of 3 .* number 1\."):
        arrivals.check(where="in orders")
    assert arrivals.add(2)
    assert arrivals.add(1)
    arrivals.check(where="in orders")


def test_messages_are_due_at_the_rate_and_not_after_one_another() -> None:
    assert [due_ns(1_000, number, 4.0) for number in range(3)] == [1_000, 250_001_000, 500_001_000]


@pytest.mark.parametrize(
    ("percent", "value"), [(50, 50), (90, 90), (99, 99), (99.9, 100), (100, 100), (0, 1)]
)
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(
    percent: float, value: float
) -> None:
    assert percentile([float(one) for one in range(1, 101)], percent) == value


def test_rows_have_rounded_figures() -> None:
    assert rate_row("produce", 3_000, 3_000_000, 2.0) == {
        "step": "produce",
        "messages": 3_000,
        "seconds": 2.0,
        "messages_per_s": 1_500,
        "mb_per_s": 1.5,
    }
    row = latency_row("received", [3.0, 1.0, 2.0])
    assert (row["min_ms"], row["p50_ms"], row["p99.9_ms"], row["max_ms"]) == (1.0, 2.0, 3.0, 3.0)


def test_every_message_is_in_one_bar_of_the_histogram() -> None:
    lines = histogram([0.5, 0.5, 1.0, 8.0, 100.0])
    counts = [int(line.split()[3]) for line in lines]
    assert sum(counts) == 5
    assert counts[0] == 2
    assert counts[-1] == 1


def test_a_histogram_of_equal_values_has_one_bar() -> None:
    assert sum("█" in line for line in histogram([5.0, 5.0])) == 1
