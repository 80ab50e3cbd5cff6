"""Actions on resources, in the vocabulary of Kafka's access control lists."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from goqueue.model.bounds import Name


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
    ALL = "ALL"  # in rules only: every action


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
ANY_RESOURCE = "*"  # as the name of a literal pattern: every resource of the kind
ANY_HOST = "*"
ANY_PRINCIPAL = "User:*"
ROLE_PREFIX = "Role:"


class Permission(StrEnum):
    """What a rule does."""

    ALLOW = "ALLOW"
    DENY = "DENY"


class PatternKind(StrEnum):
    """How the name in a rule is compared with that of a resource."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Acl(msgspec.Struct, frozen=True, order=True):
    """One rule of access control: who may, or may not, do what to which resources from where.

    The principal is a user (`User:name`, `User:*` for everybody) or a role (`Role:name`).
    """

    kind: ResourceKind
    pattern: PatternKind
    name: Name
    principal: Name
    host: Name
    action: Action
    permission: Permission
