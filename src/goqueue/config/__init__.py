"""Every setting of a node: its name, default, range and purpose, and how it is read.

A setting comes from a flag, else from the environment, else from the YAML file, else from its
default. All sources are read once, at start, and all problems are reported together. Each room
receives its own section as a value, and never the other sections, the environment or the file.

A section is a dataclass in the module of its subject: `node`, `listeners`, `storage`,
`coordinators`, `security`, `metrics` or `cluster`; a new subject gets a module of its own.
`settings` lists the sections, `consistency` has the rules between settings, and `reading` reads
the sources. `kinds` has the syntax of values (sizes, durations, addresses), also for the command
line; `listener_kinds` that of listeners, `export_kinds` that of the export of metrics.
"""

from goqueue.config.cluster import ClusterSettings, ReplicationSettings
from goqueue.config.coordinators import (
    DeliverySettings,
    GroupSettings,
    JourneySettings,
    ScheduleSettings,
    TransactionSettings,
)
from goqueue.config.kinds import UNLIMITED, Address
from goqueue.config.listeners import FetchSettings, ListenerSettings, SqsSettings
from goqueue.config.metrics import MetricsSettings
from goqueue.config.node import LoggingSettings, NodeSettings
from goqueue.config.reading import load, render
from goqueue.config.security import SecuritySettings
from goqueue.config.settings import SECTIONS, SETTINGS, Setting, Settings
from goqueue.config.storage import (
    CompactionSettings,
    ProducerSettings,
    StorageSettings,
    TopicSettings,
)

__all__ = [
    "SECTIONS",
    "SETTINGS",
    "UNLIMITED",
    "Address",
    "ClusterSettings",
    "CompactionSettings",
    "DeliverySettings",
    "FetchSettings",
    "GroupSettings",
    "JourneySettings",
    "ListenerSettings",
    "LoggingSettings",
    "MetricsSettings",
    "NodeSettings",
    "ProducerSettings",
    "ReplicationSettings",
    "ScheduleSettings",
    "SecuritySettings",
    "Setting",
    "Settings",
    "SqsSettings",
    "StorageSettings",
    "TopicSettings",
    "TransactionSettings",
    "load",
    "render",
]
