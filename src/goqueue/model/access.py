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
    CREATE_TOKENS = "CREATE_TOKENS"
    DESCRIBE_TOKENS = "DESCRIBE_TOKENS"
    TWO_PHASE_COMMIT = "TWO_PHASE_COMMIT"
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

    def __str__(self) -> str:
        where = "" if self.host == ANY_HOST else f" from {self.host}"
        many = f"{self.kind.lower()}s that begin with" if self.is_prefix else self.kind.lower()
        return f"{self.permission} {self.principal} {self.action} {many} {self.name!r}{where}"

    @property
    def is_prefix(self) -> bool:
        return self.pattern is PatternKind.PREFIXED


class PatternFilter(StrEnum):
    """Which patterns a filter with a name selects."""

    LITERAL = "LITERAL"  # the literal pattern of this name
    PREFIXED = "PREFIXED"  # the prefix of this name
    ANY = "ANY"  # both
    MATCH = "MATCH"  # all that apply to a resource of this name


class AclFilter(msgspec.Struct, frozen=True):
    """Selects rules; None stands for any value."""

    kind: ResourceKind | None = None
    pattern: PatternFilter = PatternFilter.ANY
    name: Name | None = None
    principal: Name | None = None
    host: Name | None = None
    action: Action | None = None
    permission: Permission | None = None

    def matches(self, rule: Acl) -> bool:
        # It is applied to all rules of a cluster, so what excludes most comes first.
        return (
            (self.principal is None or self.principal == rule.principal)
            and (self.name is None or self.pattern in _WIDE or self.name == rule.name)
            and (self.kind is None or self.kind is rule.kind)
            and (self.action is None or self.action is rule.action)
            and (self.permission is None or self.permission is rule.permission)
            and (self.host is None or self.host == rule.host)
            and self._matches_name(rule)
        )

    def _matches_name(self, rule: Acl) -> bool:
        pattern, name = self.pattern, self.name
        if pattern.value != rule.pattern.value and pattern not in _WIDE:
            return False
        if name is None or rule.name == name:
            return True
        if pattern is not PatternFilter.MATCH:
            return False
        return name.startswith(rule.name) if rule.is_prefix else rule.name == ANY_RESOURCE


_WIDE = (PatternFilter.ANY, PatternFilter.MATCH)
