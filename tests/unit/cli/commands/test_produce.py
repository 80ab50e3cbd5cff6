"""How `goqueue produce` reads its input."""

from __future__ import annotations

import io
from itertools import islice

import pytest

from goqueue.cli.commands.produce import (
    random_values,
    read_attributes,
    read_headers,
    read_lines,
    read_producer_settings,
    split_line,
)
from goqueue.client import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from goqueue.model.compression import Compression
from goqueue.model.errors import InvalidAttribute, InvalidRequest


def test_lines_lose_their_ends_and_the_last_needs_none() -> None:
    source = io.BytesIO(b"one\r\ntwo\n\nthree")
    assert list(read_lines(source, pause=lambda: None)) == [b"one", b"two", b"", b"three"]


def test_what_came_so_far_is_handed_on_before_waiting_for_more() -> None:
    class Pipe(io.BytesIO):
        chunks = iter([b"a\nb", b"c\n", b""])

        def read1(self, size: int | None = -1, /) -> bytes:
            return next(self.chunks)

    seen: list[bytes | str] = []
    for line in read_lines(Pipe(), pause=lambda: seen.append("pause")):
        seen.append(line)
    assert seen == [b"a", "pause", b"bc", "pause"]


def test_a_separator_splits_key_and_value_once() -> None:
    assert split_line(b"k:v:w", b":") == (b"k", b"v:w")
    assert split_line(b"k:v", None) == (None, b"k:v")
    with pytest.raises(InvalidRequest, match="no key separator"):
        split_line(b"kv", b":")


def test_headers_keep_their_order_and_may_repeat() -> None:
    assert read_headers(["a=1", "a=x=y", "b="]) == (("a", b"1"), ("a", b"x=y"), ("b", b""))
    with pytest.raises(InvalidRequest, match="NAME=VALUE"):
        read_headers(["a"])


def test_what_is_asked_for_a_message_becomes_headers() -> None:
    asked = read_attributes(delay="5m", at=None, priority="high", ttl="1h")
    assert dict(asked) == {
        "goqueue-priority": b"high",
        "goqueue-delay-ms": b"300000",
        "goqueue-ttl-ms": b"3600000",
    }
    moment = read_attributes(delay=None, at="1970-01-01T00:00:01Z", priority=None, ttl=None)
    assert moment == (("goqueue-deliver-at", b"1000"),)
    assert read_attributes(delay=None, at=None, priority=None, ttl=None) == ()
    with pytest.raises(InvalidAttribute, match="send one of critical"):
        read_attributes(delay=None, at=None, priority="urgent", ttl=None)
    with pytest.raises(InvalidRequest, match="not both"):
        read_attributes(delay="1s", at="5", priority=None, ttl=None)


@pytest.mark.parametrize(
    ("word", "acks"), [("none", ACKS_NONE), ("1", ACKS_LEADER), ("ALL", ACKS_ALL), ("-1", ACKS_ALL)]
)
def test_acks_may_be_words_or_numbers(word: str, acks: int) -> None:
    settings = read_producer_settings(acks=word, compression="zstd")
    assert (settings.acks, settings.compression) == (acks, Compression.ZSTD)
    assert settings.is_idempotent == (acks == ACKS_ALL)


@pytest.mark.parametrize("words", [("some", "none"), ("all", "rar")])
def test_unknown_words_are_refused(words: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="is unknown; use"):
        read_producer_settings(acks=words[0], compression=words[1])


def test_load_test_payloads_have_their_size_and_differ() -> None:
    values = list(islice(random_values(50), 100))
    assert {len(value) for value in values} == {50}
    assert len(set(values)) == 100
