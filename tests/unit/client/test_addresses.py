"""How broker addresses are written."""

from __future__ import annotations

import pytest

from goqueue.client.addresses import Address, read_addresses
from goqueue.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9093", [Address("localhost", 9093)]),
        ("one, two:1 ,", [Address("one", 9092), Address("two", 1)]),
        ("[::1]:9094", [Address("::1", 9094)]),
        ("[::1]", [Address("::1", 9092)]),
        ("fe80::1", [Address("fe80::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[Address]) -> None:
    assert read_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", " , ", ":9092", "host:port", "host:0", "host:70000", "[::1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="HOST:PORT"):
        read_addresses(text)


def test_an_address_is_shown_as_it_is_written() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert str(Address("localhost", 9092)) == "localhost:9092"
