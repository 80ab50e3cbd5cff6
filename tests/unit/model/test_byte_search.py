"""A search finds what is there, wherever it lies and whatever kind of buffer it lies in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model import byte_search
from goqueue.model.byte_search import Search
from goqueue.model.decoding import IS_COMPILED

SEARCHERS = [pytest.param(byte_search.plain_searcher, id="plain")]
if IS_COMPILED:
    SEARCHERS.append(pytest.param(byte_search.compiled_searcher, id="compiled"))
Searcher = Callable[[bytes], Search]


@pytest.mark.parametrize("searcher", SEARCHERS)
@pytest.mark.parametrize("size", [0, 10, 5_000, 100_000])
@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]
)
def test_every_place_in_every_kind_of_buffer(searcher: Searcher, size: int, kind: type) -> None:
    contains = searcher(b"needle-")
    hay = b"need" * (size // 4)
    assert not contains(kind(hay), 0)
    for place in {0, len(hay) // 2, len(hay)}:
        data = kind(hay[:place] + b"needle-" + hay[place:])
        assert contains(data, 0)
        assert contains(data, place)
        assert not contains(data, place + 1)


@pytest.mark.parametrize("searcher", SEARCHERS)
@given(st.binary(max_size=50), st.integers(0, 20))
def test_it_agrees_with_python(searcher: Searcher, data: bytes, start: int) -> None:
    padded = data + b"n" * 5000
    small = searcher(b"ab")
    for one in (data, padded):
        if start <= len(one):
            assert small(bytearray(one), start) == (one.find(b"ab", start) >= 0)


@pytest.mark.skipif(not IS_COMPILED, reason="there is no compiled decoder")
def test_the_compiled_search_stays_inside_its_buffer() -> None:
    contains = byte_search.compiled_searcher(b"ab")
    for start in (-1, 3):
        with pytest.raises(ValueError, match="outside"):
            contains(b"ab", start)
