"""Quotas."""

from __future__ import annotations

from collections.abc import Mapping

from goqueue.client.http.request import Request, body_of, nothing, path_of, query_of, reading
from goqueue.wire.http.bodies import quotas as bodies
from goqueue.wire.http.bodies.quotas import Quota, QuotaUse

_read_quotas = reading(bodies.Quotas)
_read_usage = reading(bodies.QuotaUsage)


class QuotaRequests:
    """An entity is a mapping of kinds (`user`, `client-id`, `ip`, `tenant`) to names.

    The name None is the default: the limit of each that has none of its own.
    """

    def list_all(
        self, entity: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> Request[list[Quota]]:
        """Return the quotas that have these names, or all."""
        names, default = _split(entity or {})
        selection = bodies.ListQuotas(**names, default=default, strict=strict)  # type: ignore[arg-type]
        query = query_of(selection)
        return Request("GET", path_of("quotas"), lambda data: _read_quotas(data).quotas, query)

    def set(
        self, entity: Mapping[str, str | None], limits: Mapping[str, float | None]
    ) -> Request[None]:
        """Set limits of an entity; None removes one."""
        body = bodies.ChangeQuota(entity=dict(entity), limits=dict(limits))
        return Request("PATCH", path_of("quotas"), nothing, body=body_of(body))

    def delete(self, entity: Mapping[str, str | None]) -> Request[None]:
        """Remove all limits of an entity."""
        names, default = _split(entity)
        query = query_of(bodies.DeleteQuota(**names, default=default))
        return Request("DELETE", path_of("quotas"), nothing, query)

    def usage(self) -> Request[list[QuotaUse]]:
        """Return how much of the limits is used in the cluster."""
        return Request("GET", path_of("quotas", "usage"), lambda data: _read_usage(data).usage)


def _split(entity: Mapping[str, str | None]) -> tuple[dict[str, str], str]:
    """Return the names as fields of a query, and the kinds of which the default is meant."""
    names = {kind.replace("-", "_"): name for kind, name in entity.items() if name}
    return names, ",".join(kind for kind, name in entity.items() if not name)
