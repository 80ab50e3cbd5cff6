"""Figures as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.cli.commands.top.views import Unit
from goqueue.cli.commands.top.writing import written


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "count", "0"),
        (9999, "count", "9999"),
        (12_345, "count", "12.3k"),
        (2_500_000, "count", "2.5M"),
        (0.04, "rate", "<0.1"),
        (1.25, "rate", "1.2"),
        (250.4, "rate", "250"),
        (512, "bytes", "512 B"),
        (1536, "bytes", "1.5 KiB"),
        (3 << 30, "byte_rate", "3.0 GiB"),
        (0.0001, "seconds", "0"),
        (0.0123, "seconds", "12 ms"),
        (3.21, "seconds", "3.2 s"),
        (95, "seconds", "95 s"),
        (1800, "seconds", "30 min"),
        (36_000, "seconds", "10 h"),
        (864_000, "seconds", "10 d"),
        (0.256, "share", "26%"),
        (None, "count", "-"),
        ("orders\n", "text", "orders\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_figures_are_short_and_have_their_unit(value: object, unit: Unit, text: str) -> None:
    assert written(value, unit) == text


@given(
    st.floats(min_value=0, max_value=1e15),
    st.sampled_from(["count", "rate", "bytes", "byte_rate"]),
)
def test_figures_keep_columns_narrow(value: float, unit: Unit) -> None:
    assert len(written(value, unit)) <= 10
