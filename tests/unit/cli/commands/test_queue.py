"""How `goqueue queue` and `goqueue schedule` read and show things."""

from __future__ import annotations

import pytest

from goqueue.cli.commands.queue.dead_letters import read_header_filter, read_moment_ms
from goqueue.cli.commands.queue.groups import read_group_settings
from goqueue.cli.commands.schedule import read_due_ms
from goqueue.cli.formats import shorten
from goqueue.cli.moments import read_offsets
from goqueue.model.errors import InvalidRequest

NOW_MS = 1_000_000


def test_settings_of_a_group_are_durations_numbers_words_and_yes_or_no() -> None:
    assert read_group_settings(
        [
            "visibility_ms=1m",
            "backoff.ms.max=90s",
            "backoff_factor=1.5",
            "deliveries_max=5",
            "key_order=TRUE",
            "start=latest",
        ]
    ) == {
        "visibility_ms": 60_000,
        "backoff_ms_max": 90_000,
        "backoff_factor": 1.5,
        "deliveries_max": 5,
        "key_order": True,
        "start": "latest",
    }
    with pytest.raises(InvalidRequest, match="NAME=VALUE"):
        read_group_settings(["key_order"])


def test_places_are_pairs_of_numbers() -> None:
    assert read_offsets(["0:42", "3:0"], "--offset") == [(0, 42), (3, 0)]
    for text in ("42", "a:1", "1:", ":1", "1:-1"):
        with pytest.raises(
            InvalidRequest, match=r"--offset .* is not valid; write PARTITION:OFFSET"
        ):
            read_offsets([text], "--offset")


def test_a_table_shows_one_line_of_text() -> None:
    assert shorten(None) is None
    assert shorten(b"two\nlines") == "two lines"
    assert shorten(b"\xff") == "\\xff"
    assert shorten(b"x" * 100) == "x" * 59 + "…"


def test_a_schedule_is_looked_for_ahead_and_a_dead_letter_in_the_past() -> None:
    assert read_due_ms("2h", now_ms=NOW_MS) == NOW_MS + 7_200_000
    assert read_due_ms("1970-01-01T00:00:01Z", now_ms=NOW_MS) == 1000
    assert read_due_ms("5000", now_ms=NOW_MS) == 5000
    assert read_due_ms(None, now_ms=NOW_MS) is None
    assert read_moment_ms("10s", now_ms=NOW_MS) == NOW_MS - 10_000
    assert read_moment_ms("1970-01-01T00:00:01Z", now_ms=NOW_MS) == 1000
    with pytest.raises(InvalidRequest, match="is not a time"):
        read_due_ms("tomorrow", now_ms=NOW_MS)
    with pytest.raises(InvalidRequest, match="is not a time"):
        read_moment_ms("earliest", now_ms=NOW_MS)


def test_a_header_may_be_asked_for_with_or_without_its_value() -> None:
    assert read_header_filter("trace") == ("trace", None)
    assert read_header_filter("trace=") == ("trace", "")
    assert read_header_filter("trace=a=b") == ("trace", "a=b")
    assert read_header_filter(None) is None
