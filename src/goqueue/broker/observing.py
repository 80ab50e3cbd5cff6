"""Creates the observers of a node, as its settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.broker.journeys.journeys import Journeys
from goqueue.broker.metrics.calls import CallCounter
from goqueue.broker.metrics.observer import MessageCounter
from goqueue.config import MetricsSettings
from goqueue.metrics import Registry, UncountedRegistry
from goqueue.model.observer import Observer
from goqueue.storage.disk import Disk

if TYPE_CHECKING:
    from goqueue.broker.audit.auditor import Auditor
    from goqueue.broker.broker import Broker


def create_registry(settings: MetricsSettings) -> Registry:
    """Create what keeps the metrics, or what only looks like it."""
    return Registry() if settings.enabled else UncountedRegistry()


def create_counters(broker: Broker) -> list[Observer]:
    """Create what counts messages and calls, unless it is switched off."""
    if not broker.settings.metrics.enabled:
        return []
    return [MessageCounter(broker.metrics), CallCounter(broker.metrics)]


def create_auditor(broker: Broker) -> Auditor | None:
    """Create the audit log, if there is one."""
    if not broker.settings.is_audited:
        return None
    from goqueue.broker.audit.auditor import Auditor  # Most nodes have none.

    return Auditor(
        broker.clock,
        broker.random,
        broker.settings.security,
        node_id=broker.node_id,
        cluster_id=lambda: broker.cluster_id,
    )


def create_journeys(broker: Broker, disk: Disk) -> Journeys | None:
    """Create the recording of journeys, unless it is switched off."""
    if not broker.settings.journeys.enabled:
        return None
    return Journeys(
        broker.clock,
        broker.topics,
        broker.leaders,
        broker.settings.journeys,
        disk=disk,
        new_id=broker.new_id,
    )
