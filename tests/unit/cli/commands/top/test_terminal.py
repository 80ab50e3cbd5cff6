"""Keys as terminals send them, and frames as they are sent to terminals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.cli.commands.top.screen import Line, Style
from goqueue.cli.commands.top.terminal import keys_of, text_of


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"12r", ["1", "2", "r"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOC\x1bOD", ["right", "left"]),
        (b"\t\x1b[Z", ["tab", "shift-tab"]),
        (b"\x1b[5~\x1b[6~", ["page-up", "page-down"]),
        (b"\x1b[1;5Aq", ["q"]),
        (b"\x1b[200~", []),
        ("é>".encode(), [">"]),
        (b"\x1b", []),
    ],
)
def test_keys_are_told_by_their_names(data: bytes, keys: list[str]) -> None:
    assert list(keys_of(data)) == keys


@given(st.binary(max_size=40))
def test_any_bytes_are_keys_or_left_out(data: bytes) -> None:
    assert all(keys_of(data))


def test_a_frame_replaces_the_one_before_without_clearing_the_screen() -> None:
    text = text_of([Line("head", Style.HEAD), Line("row"), Line("gone", Style.BAD)])
    assert text.startswith("\x1b[?2026h\x1b[H")
    assert "\x1b[2J" not in text
    assert "\x1b[1mhead\x1b[0m\x1b[K\r\nrow\x1b[K\r\n\x1b[1;31mgone\x1b[0m\x1b[K" in text


def test_without_colors_bad_news_is_bold() -> None:
    assert "31" not in text_of([Line("gone", Style.BAD)], is_colored=False)
