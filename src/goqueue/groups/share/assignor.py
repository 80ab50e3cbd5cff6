"""Distributes partitions over the members of a share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Partitions = frozenset[tuple[str, int]]


def assign(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, Partitions]:
    """Return the partitions of each member, given their topics in the order of joining.

    Every partition has at least one of the members that subscribe to its topic, every such member
    has at least one partition of it, and both are spread evenly. Topics begin with different
    members, so that topics of one partition do not all meet in one member.
    """
    by_topic: dict[str, list[str]] = {}
    for member, topics in subscriptions.items():
        for topic in topics:
            if topic in partition_counts:
                by_topic.setdefault(topic, []).append(member)
    assigned: dict[str, set[tuple[str, int]]] = {member: set() for member in subscriptions}
    turn = 0
    for topic in sorted(by_topic):
        members, count = by_topic[topic], partition_counts[topic]
        for number in range(max(len(members), count)):
            assigned[members[(turn + number) % len(members)]].add((topic, number % count))
        turn += count
    return {member: frozenset(partitions) for member, partitions in assigned.items()}
