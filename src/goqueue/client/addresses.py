"""Addresses of brokers: `HOST:PORT`, several separated by commas."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.model.errors import InvalidRequest

PORT_DEFAULT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_addresses(text: str) -> list[Address]:
    """Parse the addresses in `text`, in the order given; the default port is Kafka's."""
    addresses = [_read_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise InvalidRequest("No broker address is given; write HOST:PORT.")
    return addresses


def _read_address(text: str) -> Address:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        is_well_formed = bool(bracket) and (not rest or rest.startswith(":"))
        port = rest[1:]
    elif text.count(":") > 1:
        is_well_formed, host, port = True, text, ""  # an IPv6 address without a port
    else:
        is_well_formed, (host, _, port) = True, text.partition(":")
    number = port or str(PORT_DEFAULT)
    if not is_well_formed or not host or not _is_port(number):
        raise InvalidRequest(f"{text!r} is not a broker address; write HOST:PORT.")
    return Address(host, int(number))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) <= 65_535
