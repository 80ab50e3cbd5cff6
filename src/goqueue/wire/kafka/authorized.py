"""Authorized operations: what a client may do, as the bit fields that Kafka tools request.

Without a policy all operations are allowed, as in Apache Kafka without an authorizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from goqueue.model.access import CLUSTER, Action, Resource, ResourceKind

if TYPE_CHECKING:
    from goqueue.broker.gate import Gate
    from goqueue.model.session import Session

# The codes of operations in access control lists.
ACTION_CODES: Final[Mapping[Action, int]] = {
    Action.ALL: 2,
    Action.READ: 3,
    Action.WRITE: 4,
    Action.CREATE: 5,
    Action.DELETE: 6,
    Action.ALTER: 7,
    Action.DESCRIBE: 8,
    Action.CLUSTER_ACTION: 9,
    Action.DESCRIBE_CONFIGS: 10,
    Action.ALTER_CONFIGS: 11,
    Action.IDEMPOTENT_WRITE: 12,
    Action.CREATE_TOKENS: 13,
    Action.DESCRIBE_TOKENS: 14,
    Action.TWO_PHASE_COMMIT: 15,
}
_ON_TOPIC: Final = (
    Action.READ,
    Action.WRITE,
    Action.CREATE,
    Action.DELETE,
    Action.ALTER,
    Action.DESCRIBE,
    Action.DESCRIBE_CONFIGS,
    Action.ALTER_CONFIGS,
)
_ON_CLUSTER: Final = (
    Action.CREATE,
    Action.ALTER,
    Action.DESCRIBE,
    Action.CLUSTER_ACTION,
    Action.DESCRIBE_CONFIGS,
    Action.ALTER_CONFIGS,
    Action.IDEMPOTENT_WRITE,
)
_ON_GROUP: Final = (
    Action.READ,
    Action.DELETE,
    Action.DESCRIBE,
    Action.DESCRIBE_CONFIGS,
    Action.ALTER_CONFIGS,
)


def on_topic(gate: Gate, session: Session, name: str) -> int:
    resource = Resource(ResourceKind.TOPIC, name)
    return _bits(gate.access.allowed(session, resource=resource, actions=_ON_TOPIC))


def on_cluster(gate: Gate, session: Session) -> int:
    return _bits(gate.access.allowed(session, resource=CLUSTER, actions=_ON_CLUSTER))


def on_group(gate: Gate, session: Session, name: str) -> int:
    resource = Resource(ResourceKind.GROUP, name)
    return _bits(gate.access.allowed(session, resource=resource, actions=_ON_GROUP))


def _bits(actions: Iterable[Action]) -> int:
    return sum(1 << ACTION_CODES[one] for one in actions)


NOT_ASKED_FOR: Final = -(1 << 31)
