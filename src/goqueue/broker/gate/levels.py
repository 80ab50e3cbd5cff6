"""Since which feature level operations exist, and which of their arguments came later.

An operation that an older node must answer is refused with `UpgradeInProgress`, which clients
retry; where all nodes answer, older ones are left out. What is not listed exists since the first
level. `tests/unit/upgrade` compares the tables with the operations of earlier releases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from goqueue.delivery import level_of_changes
from goqueue.model.support import LEVEL_MIN

OPERATIONS_SINCE: Mapping[str, int] = {
    "backups.hold_commits": 3,
    "backups.read": 3,
    "backups.release_commits": 3,
    "backups.spans": 3,
    "dead_letters.summary": 3,
    "dead_letters.topics": 3,
    "figures.groups_here": 3,
    "figures.share_groups": 3,
    "figures.topic_values": 3,
    "figures.topics_here": 3,
    "figures.totals_here": 3,
    "history.of_cluster": 3,
    "history.of_group": 3,
    "history.of_topic": 3,
    "inspection.deliveries_here": 3,
    "inspection.histogram": 3,
    "inspection.in_flight": 3,
    "inspection.readers_here": 3,
    "inspection.settle": 3,
    "journeys.count_events": 3,
    "journeys.find_events": 3,
    "queries.list": 3,
    "queues.give_back": 3,
    "records.search_partition": 3,
    "schedules.calendar": 3,
    "share_groups.acknowledge": 3,
    "share_groups.alter_offsets": 3,
    "share_groups.delete": 3,
    "share_groups.delete_offsets": 3,
    "share_groups.describe": 3,
    "share_groups.exchange": 3,
    "share_groups.forget": 3,
    "share_groups.give_back": 3,
    "share_groups.heartbeat": 3,
    "share_groups.offsets": 3,
    "share_groups.release": 3,
}
ARGUMENTS_SINCE: Mapping[tuple[str, str], int] = {
    ("queues.rewind", "is_dry_run"): 3,
    ("transactions.list", "after"): 3,
}
# The level of a value: of maps, whose names may be later ones.
VALUES_SINCE: Mapping[tuple[str, str], Callable[[Any], int]] = {
    ("groups.change_queue", "changes"): level_of_changes,
}


def operation_level(name: str) -> int:
    """Return the feature level that a node must support to answer an operation."""
    return OPERATIONS_SINCE.get(name, LEVEL_MIN)


def argument_level(operation: str, argument: str) -> int:
    """Return the feature level that a node must support to get an argument."""
    return ARGUMENTS_SINCE.get((operation, argument), LEVEL_MIN)


def value_level(operation: str, argument: str, value: Any) -> int:
    """Return the feature level that a node must support to get this value of an argument."""
    level_of = VALUES_SINCE.get((operation, argument))
    return LEVEL_MIN if level_of is None else level_of(value)
