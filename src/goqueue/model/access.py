"""Actions on resources, in the vocabulary of Kafka's access control lists."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Action(StrEnum):
    """What an operation does to a resource."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"


class ResourceKind(StrEnum):
    """What an operation touches. Subjects are those of the schema registry; Kafka has none."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"
    SUBJECT = "SUBJECT"


class Resource(NamedTuple):
    """One resource to which access is granted."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower().replace('_', ' ')} {self.name!r}"


class Access(NamedTuple):
    """An action on a resource."""

    action: Action
    resource: Resource


CLUSTER = Resource(ResourceKind.CLUSTER, "kafka-cluster")  # the name that Kafka's tools use
