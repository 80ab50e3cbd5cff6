"""Settings and sizes of `goqueue topic`."""

from __future__ import annotations

import pytest

from goqueue.cli.commands.topic import read_settings, show_size
from goqueue.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("written", "name", "value"),
    [
        ("retention.ms=60000", "retention.ms", "60000"),
        ("retention_ms=7d", "retention.ms", "604800000"),
        ("segment_bytes=64MiB", "segment.bytes", "67108864"),
        ("retention.bytes=-1", "retention.bytes", "-1"),
        ("retention.ms=soon", "retention.ms", "soon"),  # the broker says what is wrong with it
        ("cleanup_policy=compact,delete", "cleanup.policy", "compact,delete"),
    ],
)
def test_a_setting_may_be_written_in_many_ways(written: str, name: str, value: str) -> None:
    assert read_settings([written]) == {name: value}


@pytest.mark.parametrize("written", ["retention.ms", "=5"])
def test_what_is_no_setting_is_refused(written: str) -> None:
    with pytest.raises(InvalidRequest, match="NAME=VALUE"):
        read_settings([written])


def test_sizes_are_shown_for_people() -> None:
    assert [show_size(size) for size in (0, 1023, 1536, 3 << 30, 5 << 40)] == [
        *("0 B", "1023 B", "1.5 KiB", "3.0 GiB"),
        "5.0 TiB",
    ]
