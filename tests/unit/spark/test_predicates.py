"""Predicates as options: never less than was asked for."""

from __future__ import annotations

import pytest

from goqueue.model.errors import InvalidRequest
from goqueue.spark import ranges

T0 = "timestamp >= '1970-01-01T00:00:01Z'"


@pytest.mark.parametrize(
    ("predicate", "options"),
    [
        ("partition = 3", {"partitions": "3"}),
        ("3 = partition", {"partitions": "3"}),
        ("partition in (4, 1)", {"partitions": "1,4"}),
        ("partition in (4, 1) and partition = 1", {"partitions": "1"}),
        ("partition = 2 and partition = 1", {"endingOffsets": "0"}),
        ("offset >= 5 and offset < 9", {"startingOffsets": "5", "endingOffsets": "9"}),
        ("offset > 5 AND offset <= 9", {"startingOffsets": "6", "endingOffsets": "10"}),
        ("5 < offset and 9 >= `offset`", {"startingOffsets": "6", "endingOffsets": "10"}),
        ("offset between 5 and 9", {"startingOffsets": "5", "endingOffsets": "10"}),
        ("offset = 7", {"startingOffsets": "7", "endingOffsets": "8"}),
        ("offset > 5 and offset > 2 and offset < 9 and offset < 12",
         {"startingOffsets": "6", "endingOffsets": "9"}),
        ("offset > -4 and offset < -2", {"startingOffsets": "0", "endingOffsets": "0"}),
        (T0, {"startingTimestamp": "1000"}),
        ("timestamp > timestamp '1970-01-01T00:00:01Z'", {"startingTimestamp": "1001"}),
        ("timestamp >= '1970-01-01T00:00:01.0005Z'", {"startingTimestamp": "1000"}),
        ("timestamp > '1970-01-01T00:00:01.0005Z'", {"startingTimestamp": "1000"}),
        (f"offset > 5 and {T0}", {"startingOffsets": "6"}),
        ("((offset > 5) and (partition = 1))", {"startingOffsets": "6", "partitions": "1"}),
        ("(partition = 1 or partition = 2) and offset > 5", {"startingOffsets": "6"}),
        ("offset > 5 and value like '%and offset < 3%'", {"startingOffsets": "6"}),
        ("offset > 5 and key = 'it''s' and upper(topic) = 'X'", {"startingOffsets": "6"}),
    ],
)  # fmt: skip
def test_comparisons_become_options(predicate: str, options: dict[str, str]) -> None:
    assert ranges(predicate) == options


@pytest.mark.parametrize(
    "predicate",
    [
        "topic = 'a'",
        "partition > 3",
        "partition <> 3",
        "offset != 3",
        "offset = other",
        "offset > 5.5",
        "offset + 1 > 5",
        "not offset > 5",
        "offset is not null",
        "partition not in (1)",
        "partition in (select 1)",
        "offset not between 3 and 5",
        "timestamp >= '2026-01-01'",  # of which zone?
        "timestamp < '1970-01-01T00:00:01Z'",  # a later record may be older
        "timestamp > current_timestamp()",
        "",
    ],
)
def test_what_is_not_understood_is_left_to_spark(predicate: str) -> None:
    assert ranges(predicate) == {}


def test_times_without_a_zone_are_the_sessions() -> None:
    found = ranges("timestamp >= '1970-01-01 02:00:01'", time_zone="Africa/Cairo")
    assert found == {"startingTimestamp": "1000"}
    assert ranges("timestamp >= '1970-01-01'", time_zone="Mars") == {}


def test_where_times_never_go_back_they_end_a_range() -> None:
    found = ranges(f"{T0} and timestamp < '1970-01-01T00:00:02Z'", is_time_ordered=True)
    assert found == {"startingTimestamp": "1000", "endingTimestamp": "2000"}
    found = ranges("timestamp <= '1970-01-01T00:00:02.0005Z'", is_time_ordered=True)
    assert found == {"endingTimestamp": "2001"}


@pytest.mark.parametrize("predicate", ["offset > 5 or offset < 3", "(offset > 5", "offset > 5)"])
def test_what_is_no_range_is_refused(predicate: str) -> None:
    with pytest.raises(InvalidRequest):
        ranges(predicate)
