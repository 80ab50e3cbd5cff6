"""How sizes, durations, addresses and the like are read and shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.config.kinds import (
    COUNT,
    DURATION,
    INT64_MAX,
    SIZE,
    UNLIMITED,
    Address,
    HostPort,
    Number,
    Peers,
    Ratio,
    Switch,
    Unit,
    Word,
)

ANY_SIZE = Number(SIZE, 0, INT64_MAX)
ANY_DURATION = Number(DURATION, 0, INT64_MAX)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ANY_SIZE, "64MiB", 67_108_864),
        (ANY_SIZE, "1.5 kib", 1_536),
        (ANY_SIZE, "1MB", 1_000_000),
        (ANY_SIZE, "1_000", 1_000),
        (ANY_DURATION, "7d", 604_800_000),
        (ANY_DURATION, "0.5s", 500),
        (ANY_DURATION, "250", 250),
    ],
)
def test_numbers_carry_units(kind: Number, text: str, value: int) -> None:
    assert kind.read(text) == value


@pytest.mark.parametrize("text", ["", "MiB", "1 2", "1e6", "0x10", "5d", "1.5", "-", "inf", "٣"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        ANY_SIZE.read(text)


def test_a_range_is_kept_and_told() -> None:
    kind = Number(COUNT, 1, 10)
    assert [kind.read("1"), kind.read("10")] == [1, 10]
    for text in ("0", "11", "-1"):
        with pytest.raises(ValueError, match="expected a whole number from 1 to 10"):
            kind.read(text)


def test_unlimited_is_read_only_where_it_is_allowed() -> None:
    kind = Number(SIZE, 1, INT64_MAX, has_limit=False)
    assert kind.read("-1") == kind.read("unlimited") == UNLIMITED
    with pytest.raises(ValueError, match="or -1 for unlimited"):
        kind.read("-2")


@given(st.integers(0, INT64_MAX), st.sampled_from([SIZE, DURATION, COUNT]))
def test_a_shown_number_reads_as_the_same_number(value: int, unit: Unit) -> None:
    kind = Number(unit, 0, INT64_MAX)
    assert kind.read(kind.show(value)) == value


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("[::1]:0", Address("::1", 0)),
        ("queue-1.example:65535", Address("queue-1.example", 65535)),
    ],
)
def test_addresses_are_read_and_shown(text: str, address: Address) -> None:
    assert HostPort().read(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "9092", ":9092", "host", "host:", "host:65536", "host:-1", "::1:9", "a b:1", "[]:1"],
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        HostPort().read(text)


@pytest.mark.parametrize(
    ("host", "is_loopback", "is_wildcard"),
    [
        ("127.0.0.1", True, False),
        ("127.9.9.9", True, False),
        ("::1", True, False),
        ("LocalHost", True, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("10.0.0.1", False, False),
        ("queue.example", False, False),
    ],
)
def test_an_address_knows_who_can_reach_it(host: str, is_loopback: bool, is_wildcard: bool) -> None:
    address = Address(host, 1)
    assert (address.is_loopback, address.is_wildcard) == (is_loopback, is_wildcard)


def test_a_ratio_lies_between_nothing_and_everything() -> None:
    assert Ratio().read("0.5") == 0.5
    for text in ("1.1", "-0.1", "nan", "half"):
        with pytest.raises(ValueError, match="expected a number from 0 to 1"):
            Ratio().read(text)


def test_a_switch_takes_the_words_of_yaml_and_of_shells() -> None:
    assert [Switch().read(text) for text in ("true", "Yes", "on", "1")] == [True] * 4
    assert [Switch().read(text) for text in ("false", "No", "off", "0")] == [False] * 4
    with pytest.raises(ValueError, match="is not true or false"):
        Switch().read("maybe")


def test_a_word_has_no_blanks_and_an_end() -> None:
    assert Word(5).read("a-b.c") == "a-b.c"
    for text in ("a b", "abcdef", "ä"):
        with pytest.raises(ValueError, match="is not a name"):
            Word(5).read(text)


def test_peers_are_nodes_with_addresses() -> None:
    text = "1@a.example:9094,2@[::1]:9094"
    assert Peers().read(f" {text.replace(',', ' , ')} ") == text
    assert Peers().read("") == ""


@pytest.mark.parametrize(
    "text",
    [
        "a:1",
        "x@a:1",
        "1@a",
        "1@a:0",
        "1@a:1,1@b:1",
        "1@a:1,2@a:1",
        "1@a:1,",
        "-1@a:1",
        "1@",
        "@a:1",
    ],
)
def test_what_is_not_a_list_of_peers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|twice"):
        Peers().read(text)
