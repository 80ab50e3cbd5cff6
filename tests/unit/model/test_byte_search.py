"""A search finds what is there, wherever it lies and whatever kind of buffer it lies in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model import byte_search
from goqueue.model.byte_search import searcher

contains = searcher(b"needle-")


@pytest.mark.parametrize("size", [0, 10, 5_000, 100_000])
@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]
)
def test_every_place_in_every_kind_of_buffer(size: int, kind: type) -> None:
    hay = b"need" * (size // 4)
    assert not contains(kind(hay), 0)
    for place in {0, len(hay) // 2, len(hay)}:
        data = kind(hay[:place] + b"needle-" + hay[place:])
        assert contains(data, 0)
        assert contains(data, place)
        assert not contains(data, place + 1)


@given(st.binary(max_size=50), st.integers(0, 20))
def test_it_agrees_with_python(data: bytes, start: int) -> None:
    padded = data + b"n" * 5000
    small = searcher(b"ab")
    for one in (data, padded):
        if start <= len(one):
            assert small(bytearray(one), start) == (one.find(b"ab", start) >= 0)


def test_it_works_without_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_search, "_memmem", lambda: None)
    plain = searcher(b"needle-")
    assert plain(b"x" * 9_000 + b"needle-", 0)
    assert not plain(b"x" * 9_000, 0)
