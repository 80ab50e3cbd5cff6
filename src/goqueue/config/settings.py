"""All sections of a node, and the table of every setting that they declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from goqueue.config.cluster import ClusterSettings, ReplicationSettings
from goqueue.config.coordinators import (
    DeliverySettings,
    GroupSettings,
    JourneySettings,
    ScheduleSettings,
    TransactionSettings,
)
from goqueue.config.fields import About
from goqueue.config.listeners import FetchSettings, ListenerSettings, SqsSettings
from goqueue.config.metrics import MetricsSettings
from goqueue.config.node import LoggingSettings, NodeSettings
from goqueue.config.security import AUTO, ON, SecuritySettings
from goqueue.config.storage import (
    CompactionSettings,
    ProducerSettings,
    StorageSettings,
    TopicSettings,
)

VARIABLE_PREFIX = "GOQUEUE_"


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections of a node, and the source of each value."""

    node: NodeSettings = NodeSettings()
    cluster: ClusterSettings = ClusterSettings()
    replication: ReplicationSettings = ReplicationSettings()
    listeners: ListenerSettings = ListenerSettings()
    security: SecuritySettings = SecuritySettings()
    storage: StorageSettings = StorageSettings()
    compaction: CompactionSettings = CompactionSettings()
    topics: TopicSettings = TopicSettings()
    producers: ProducerSettings = ProducerSettings()
    groups: GroupSettings = GroupSettings()
    transactions: TransactionSettings = TransactionSettings()
    delivery: DeliverySettings = DeliverySettings()
    schedules: ScheduleSettings = ScheduleSettings()
    journeys: JourneySettings = JourneySettings()
    sqs: SqsSettings = SqsSettings()
    fetch: FetchSettings = FetchSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()
    # "section.name" to "file goqueue.yaml line 3" and the like; defaults are not listed.
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def controls_access(self) -> bool:
        """Whether clients may only do what access control lists allow."""
        if self.security.access_control != AUTO:
            return self.security.access_control == ON
        listeners = self.listeners.all_of_clients()
        return any(map(self.security.may_authenticate, listeners)) or bool(
            self.security.initial_admin[0]
        )

    @property
    def is_audited(self) -> bool:
        """Whether the node writes an audit log."""
        is_auto = self.security.audit == AUTO
        return self.controls_access if is_auto else self.security.audit == ON


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings."""

    section: str
    name: str
    default: object
    about: About

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variables(self) -> list[str]:
        """Environment variables: the systematic name, then that of the flag if it has one."""
        systematic = f"{VARIABLE_PREFIX}{self.section}_{self.name}".upper()
        short = VARIABLE_PREFIX + self.about.flag.strip("-").replace("-", "_").upper()
        return [systematic] if not self.about.flag else list(dict.fromkeys([systematic, short]))


SECTIONS: Mapping[str, Any] = {
    section.name: type(section.default)
    for section in dataclasses.fields(Settings)
    if section.name != "sources"
}
SETTINGS: Mapping[str, Setting] = {
    f"{section}.{one.name}": Setting(section, one.name, one.default, one.metadata["about"])
    for section, its_class in SECTIONS.items()
    for one in dataclasses.fields(its_class)
}
