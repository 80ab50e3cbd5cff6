"""Assignment of partitions to members: sets of partitions, subscriptions and assignors.

Everything here is a pure function of subscriptions, partition counts and the current assignment.
It has no members, epochs or time; the packages `classic` and `consumer` decide when to assign.
"""

from goqueue.groups.assignment.assignors import (
    DEFAULT_ASSIGNOR,
    SERVER_ASSIGNORS,
    assign_range,
    assign_roundrobin,
    assign_sticky,
)
from goqueue.groups.assignment.partitions import (
    NO_PARTITIONS,
    Partition,
    Partitions,
    flatten,
    nest,
)

__all__ = [
    "DEFAULT_ASSIGNOR",
    "NO_PARTITIONS",
    "SERVER_ASSIGNORS",
    "Partition",
    "Partitions",
    "assign_range",
    "assign_roundrobin",
    "assign_sticky",
    "flatten",
    "nest",
]
