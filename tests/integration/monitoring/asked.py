"""Which series rules and boards name."""

from __future__ import annotations

from tests.unit.monitoring.queries import metrics_of
from tools.monitoring.alerts import ALERTS
from tools.monitoring.boards import BOARDS

OF_CLUSTERS = "goqueue_cluster_"  # exported by nodes that form a cluster
BY_PROMETHEUS = {"up", "ALERTS"}


def wanted() -> set[str]:
    """Every series that a rule or a board names."""
    queries = [alert.expression for alerts in ALERTS.values() for alert in alerts]
    queries += [
        query.expression
        for board in BOARDS
        for section in board.sections
        for panel in section.panels
        for query in panel.queries
    ]
    variables = {name for board in BOARDS for one in board.variables for name in one.series}
    return variables.union(*map(metrics_of, queries)) - BY_PROMETHEUS
