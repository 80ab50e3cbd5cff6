"""Answers for one batch each."""

from __future__ import annotations

import pytest

from goqueue.wire.kafka.produce_fast_path import Layout
from goqueue.wire.kafka.request_reference import VERSION_MAX, VERSION_MIN


@pytest.mark.parametrize("version", range(VERSION_MIN, VERSION_MAX + 1))
def test_a_template_is_the_answer_for_the_log_as_it_begins_now(version: int) -> None:
    layout = Layout(b"orders", 3, version)
    for start_offset in (0, 7, 7, 1 << 40, 0):
        assert layout.template(start_offset) == layout.pack(0, 0, -1, -1, start_offset)
