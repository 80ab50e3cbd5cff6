"""A digest tells other records from the same ones, whatever their order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.spark.pipelines.digests import Digest, digest_of, total
from tests.unit.spark.pipelines.rows import batch

HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}),
    min_size=1,
    max_size=3,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=4),
            "value": st.none() | st.binary(max_size=20),
            "headers": HEADERS,
            "timestamp": st.integers(-1, 10**12),
        }
    ),
    max_size=20,
)


def test_archives_that_were_written_before_keep_their_digests() -> None:
    headers = [{"key": "a", "value": None}, {"key": "\u00e9", "value": b"x"}]
    rows = [
        {"key": None, "value": b"", "timestamp": 0, "headers": None},
        {"key": b"k", "value": b"v" * 1000, "timestamp": 7, "headers": headers},
        {"key": b"", "value": None, "timestamp": 9, "headers": []},
    ]
    assert digest_of(batch(rows)) == Digest(3, 12457861955578681752, 15727634853640028467)


@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_cuts_do_not_matter(rows: list[dict[str, Any]], rng: Any, cut: int) -> None:
    whole = digest_of(batch(rows))
    shuffled = rng.sample(rows, len(rows))
    parts = batch(shuffled)
    assert total([digest_of(parts.slice(0, cut)), digest_of(parts.slice(cut))]) == whole
    assert whole.records == len(rows)


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"other"},
        {"key": None},
        {"key": b""},
        {"value": b"VALUE"},
        {"value": None},
        {"key": b"value", "value": b"key"},
        {"headers": [{"key": "a", "value": b""}]},
        {"headers": [{"key": "a", "value": None}]},
        {"headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}]},
        {"headers": [{"key": "b", "value": b"2"}, {"key": "a", "value": b"1"}]},
    ],
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    same, other = digest_of(batch([{}, {}])), digest_of(batch([{}, change]))
    assert same.content != other.content
    assert same.timed != other.timed


def test_a_record_twice_is_not_two_others() -> None:
    first, second = {"value": b"1"}, {"value": b"2"}
    assert digest_of(batch([first, first])) != digest_of(batch([second, second]))
    assert digest_of(batch([first, first])) != digest_of(batch([first]))


def test_a_timestamp_counts_in_one_of_the_sums() -> None:
    early, late = digest_of(batch([{"timestamp": 1}])), digest_of(batch([{"timestamp": 2}]))
    assert early.content == late.content
    assert early.timed != late.timed


def test_large_columns_are_the_same_to_it() -> None:
    rows = batch([{"value": b"1"}, {"value": None}])
    large = rows.set_column(
        1, pa.field("value", pa.large_binary()), rows["value"].cast("large_binary")
    )
    assert digest_of(large) == digest_of(rows)
    assert digest_of(batch([])) == Digest()
