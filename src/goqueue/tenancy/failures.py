"""Back-off after failed attempts to authenticate.

Each pair of an address and a user may fail a few times; then every further failure doubles the time
for which attempts are refused without a check. An address that fails with many users has to wait
too, except for users that have logged in from it: a client with a wrong password does not lock out
the others behind its address. Nothing is held against a user everywhere, so that an attacker cannot
lock out a user from the user's own address. Failures are forgotten one by one as time passes.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

FREE_FAILURES = 5  # of one user from one address
FREE_FAILURES_OF_ADDRESS = 50  # of all users together
WAIT_MS_MIN = 250
WAIT_MS_MAX = 60_000
FORGET_MS = 60_000  # in which one failure is forgotten
COUNT_MAX = 100  # of failures that are counted, so that any of them are forgotten in due time
ENTRIES_MAX = 10_000  # the oldest are dropped
KNOWN_MAX = 10_000  # pairs that have succeeded
NAME_LENGTH_MAX = 255  # longer than any user has; what clients send is not stored at any length
IPV6_PREFIX_BITS = 64  # of which one client usually has all addresses

_Subject = tuple[str, str | None]  # an address, and a user or None for all of them


class _Entry(NamedTuple):
    """Failures as time: each adds `FORGET_MS`, which passes."""

    owed_ms: int  # at the last failure
    last_ms: int

    @property
    def failures(self) -> int:
        return -(-self.owed_ms // FORGET_MS)


class Failures:
    """Counts failures, and returns how long a client has to wait."""

    def __init__(self) -> None:
        self._entries: dict[_Subject, _Entry] = {}
        self._known: dict[_Subject, None] = {}

    def wait_ms(self, host: str, user: str, *, now_ms: int) -> int:
        """Return for how long attempts of this address for this user are refused; 0: try now."""
        network, pair = _subjects(host, user)
        wait_ms = self._wait(pair, FREE_FAILURES, now_ms)
        if pair not in self._known:
            wait_ms = max(wait_ms, self._wait(network, FREE_FAILURES_OF_ADDRESS, now_ms))
        return wait_ms

    def failed(self, host: str, user: str, *, now_ms: int) -> None:
        for subject in _subjects(host, user):
            before = self._entries.pop(subject, _Entry(0, now_ms))
            owed_ms = max(0, before.owed_ms - (now_ms - before.last_ms)) + FORGET_MS
            # The newest is the last entry.
            self._entries[subject] = _Entry(min(owed_ms, COUNT_MAX * FORGET_MS), now_ms)
        _shorten(self._entries, ENTRIES_MAX)

    def succeeded(self, host: str, user: str) -> None:
        _, pair = _subjects(host, user)
        self._entries.pop(pair, None)
        self._known.pop(pair, None)
        self._known[pair] = None
        _shorten(self._known, KNOWN_MAX)

    def _wait(self, subject: _Subject, free: int, now_ms: int) -> int:
        entry = self._entries.get(subject)
        if entry is None or entry.failures <= free:
            return 0
        pause = min(WAIT_MS_MAX, WAIT_MS_MIN << min(entry.failures - free - 1, 16))
        return max(0, entry.last_ms + pause - now_ms)


def _subjects(host: str, user: str) -> tuple[_Subject, _Subject]:
    network = _network_of(host)
    return (network, None), (network, user[:NAME_LENGTH_MAX])


def _network_of(host: str) -> str:
    """Return the address, or the network of an IPv6 address."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX_BITS), strict=False))


def _shorten(table: dict[_Subject, _Entry] | dict[_Subject, None], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]
