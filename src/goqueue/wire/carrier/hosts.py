"""Which names a node is called by over HTTP, so that no other site can speak for its users.

A page of another site can have its own name resolve to the address of a node, and then read all
that the node answers, because to the browser it is the page's own site (DNS rebinding). The browser
still sends that name in `Host`. A number can be no such name, so addresses are always taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

ANY = "*"
SEEN_MAX = 1_000  # values of the header that are remembered
_LOCAL = "localhost"


class Hosts:
    """The names that a node answers to; addresses, and names of this machine, are among them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.lower().rstrip(".") for name in names if name}
        self._seen: dict[bytes, bool] = {}

    def include(self, header: bytes) -> bool:
        """Whether a request with this `Host` is for this node; browsers always send one."""
        known = self._seen.get(header)
        if known is None:
            known = self._is_known(header)
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen[header] = known
        return known

    def _is_known(self, header: bytes) -> bool:
        host = _without_port(header.decode("latin-1").strip()).lower().rstrip(".")
        if not host or ANY in self._names or host in self._names:
            return True
        if host == _LOCAL or host.endswith(f".{_LOCAL}"):
            return True  # Browsers ask nobody what these mean.
        try:
            ip_address(host)
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
