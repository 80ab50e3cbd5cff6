"""The health and the version of a node."""

from __future__ import annotations

from goqueue.client.http.request import Request, reading
from goqueue.wire.http.bodies.node import Health, Version

_read_health = reading(Health)
_read_version = reading(Version)


class NodeRequests:
    def health(self) -> Request[Health]:
        """Return the health of the node; raise if it is not healthy."""
        return Request("GET", "/healthz", _read_health)

    def version(self) -> Request[Version]:
        """Return the version of the node, its id, and the id of its cluster."""
        return Request("GET", "/version", _read_version)
