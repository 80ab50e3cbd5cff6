"""A search finds what is there, wherever it lies and whatever kind of buffer it lies in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.model.decoding import IS_COMPILED, Search, compiled_searcher, plain_searcher

SEARCHERS = [pytest.param(plain_searcher, id="plain")]
if IS_COMPILED:
    SEARCHERS.append(pytest.param(compiled_searcher, id="compiled"))
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


@pytest.mark.parametrize("searcher", SEARCHERS)
@given(
    st.integers(0, 100), st.integers(0, 100), st.sampled_from([b"n", b"na", b"nana-", b"n" * 40])
)
def test_it_finds_what_lies_anywhere_among_what_looks_like_it(
    searcher: Searcher, before: int, after: int, needle: bytes
) -> None:
    contains = searcher(needle)
    like = (b"n" + needle[1:-1] + b"x") if len(needle) > 1 else b"x"
    head, tail = (like * 100)[:before], (like * 100)[:after]
    data = head + needle + tail
    assert contains(data, 0)
    assert contains(data, before)
    assert contains(head + tail, 0) == (needle in head + tail)
    # Nothing behind the end is looked at.
    assert contains(memoryview(data)[: before + len(needle) - 1], 0) == (
        needle in data[: before + len(needle) - 1]
    )


@pytest.mark.skipif(not IS_COMPILED, reason="there is no compiled decoder")
def test_the_compiled_search_stays_inside_its_buffer() -> None:
    contains = compiled_searcher(b"ab")
    for start in (-1, 3):
        with pytest.raises(ValueError, match="outside"):
            contains(b"ab", start)
