"""The health and the version of a node."""

from __future__ import annotations

from goqueue.client.http.request import Request, reading
from goqueue.client.http.samples import Sample, read_samples
from goqueue.wire.http.bodies.node import Health, Version

_read_health = reading(Health)
_AS_TEXT = {"accept": "text/plain; version=0.0.4"}
_read_version = reading(Version)


class NodeRequests:
    def health(self) -> Request[Health]:
        """Return the health of the node; raise if it is not healthy."""
        return Request("GET", "/healthz", _read_health)

    def version(self) -> Request[Version]:
        """Return the version of the node, its id, and the id of its cluster."""
        return Request("GET", "/version", _read_version)

    def metrics(self) -> Request[list[Sample]]:
        """Return the metrics of the node, by topic and group; see docs/metrics.md."""
        return Request("GET", "/metrics", read_samples, headers=_AS_TEXT)
