"""The node itself: is it well, and which version is it."""

from __future__ import annotations

from goqueue.client.http.request import Request, reading
from goqueue.wire.http.bodies.node import Health, Version

_read_health = reading(Health)
_read_version = reading(Version)


class NodeRequests:
    def health(self) -> Request[Health]:
        """Whether the node does all that it should; raises while it does not."""
        return Request("GET", "/healthz", _read_health)

    def version(self) -> Request[Version]:
        """Which version the node has, and which node of which cluster it is."""
        return Request("GET", "/version", _read_version)
