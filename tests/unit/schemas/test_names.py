"""Subjects and contexts, as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.schemas.names import EVERYTHING, Subject, matches_prefix, read_subject


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("users", Subject(".", "users")),
        ("", EVERYTHING),
        (":.:", EVERYTHING),
        (":.:users", Subject(".", "users")),
        (":.sales:users", Subject(".sales", "users")),
        (":.sales:", Subject(".sales", "")),
        (":.sales", Subject(".sales", "")),
        (":.sales:a:b", Subject(".sales", "a:b")),
        (":plain", Subject(".", ":plain")),
    ],
)
def test_a_name_is_taken_apart(text: str, subject: Subject) -> None:
    assert read_subject(text) == subject


@given(st.text(max_size=30))
def test_a_name_means_the_same_when_written_again(text: str) -> None:
    once = read_subject(text)
    assert read_subject(str(once)) == once


def test_a_bare_name_belongs_where_it_is_said() -> None:
    assert read_subject("users", within=".sales") == Subject(".sales", "users")
    assert read_subject(":.other:users", within=".sales") == Subject(".other", "users")


def test_prefixes_stay_in_their_context_unless_told() -> None:
    mine, theirs = Subject(".", "users"), Subject(".sales", "users")
    assert matches_prefix(mine, "us")
    assert not matches_prefix(theirs, "us")
    assert matches_prefix(theirs, ":.sales:u")
    assert matches_prefix(mine, ":*:us")
    assert matches_prefix(theirs, ":*:us")
    assert matches_prefix(theirs, "")
    assert not matches_prefix(mine, ":*:x")
