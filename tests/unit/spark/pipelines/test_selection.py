"""Conditions that contradict themselves are refused before anything is read."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark.pipelines.selection import Selection


def test_an_empty_stretch_of_time_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not before"):
        Selection(from_ms=5, until_ms=5)
    Selection(from_ms=5, until_ms=6)


def test_a_value_without_the_name_of_its_header_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs its name"):
        Selection(header_value=b"x")
