"""The host names that a node accepts in HTTP requests, as a protection against DNS rebinding.

The name of another site can be made to resolve to the address of a node. To the browser the node is
then part of that site, whose pages can read its responses. The browser still sends the name in
`Host`, so unknown names are refused. IP addresses cannot be rebound and are always accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

ANY = "*"
SEEN_MAX = 1_000  # cached values of the header
_LOCAL = "localhost"


class Hosts:
    """The accepted host names, including all IP addresses and the names of this machine."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.lower().rstrip(".") for name in names if name}
        self._seen: dict[bytes, bool] = {}

    def include(self, header: bytes) -> bool:
        """Whether a request with this `Host` is accepted; browsers always send the header."""
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
            return True  # Browsers do not resolve these by DNS.
        try:
            ip_address(host)
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
