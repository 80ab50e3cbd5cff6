"""Every alert, by the part of the product that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.monitoring.alerts import clients, cluster, delivery, nodes, security, storage
from tools.monitoring.alerts.alert import Alert, Case

ALERTS: Mapping[str, Sequence[Alert]] = {
    "nodes": nodes.ALERTS,
    "cluster": cluster.ALERTS,
    "storage": storage.ALERTS,
    "clients": clients.ALERTS,
    "delivery": delivery.ALERTS,
    "security": security.ALERTS,
}

__all__ = ["ALERTS", "Alert", "Case"]
