"""Partition assignment: pure functions from subscriptions to an assignment.

Every assignor takes the topics of each member, the partition count of each topic, and the current
assignment. Members are processed in the order of the mapping. Every partition of a subscribed topic
gets exactly one owner, which subscribes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from goqueue.groups.assignment.balance import Balance
from goqueue.groups.assignment.partitions import Partition, Partitions

Subscriptions = Mapping[str, Collection[str]]
Assignment = dict[str, Partitions]
Assignor = Callable[[Subscriptions, Mapping[str, int], Mapping[str, Partitions]], Assignment]


def assign_range(
    subscriptions: Subscriptions, topics: Mapping[str, int], current: Mapping[str, Partitions]
) -> Assignment:
    """Give each member one range of every topic, so that topics are co-partitioned."""
    shares: dict[str, list[Partition]] = {member: [] for member in subscriptions}
    for topic, members in _subscribers(subscriptions, topics).items():
        size, larger = divmod(topics[topic], len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + size + (index < larger)
            shares[member].extend((topic, partition) for partition in range(start, end))
            start = end
    return {member: frozenset(share) for member, share in shares.items()}


def assign_roundrobin(
    subscriptions: Subscriptions, topics: Mapping[str, int], current: Mapping[str, Partitions]
) -> Assignment:
    """Assign all partitions round-robin, skipping members that do not subscribe to the topic."""
    shares: dict[str, list[Partition]] = {member: [] for member in subscriptions}
    members = list(subscriptions)
    turn = 0
    for topic, readers in sorted(_subscribers(subscriptions, topics).items()):
        readers_set = set(readers)
        for partition in range(topics[topic]):
            while members[turn % len(members)] not in readers_set:
                turn += 1
            shares[members[turn % len(members)]].append((topic, partition))
            turn += 1
    return {member: frozenset(share) for member, share in shares.items()}


def assign_sticky(
    subscriptions: Subscriptions, topics: Mapping[str, int], current: Mapping[str, Partitions]
) -> Assignment:
    """Balance the members while moving as few partitions as possible."""
    readers = _subscribers(subscriptions, topics)
    kept = _kept(subscriptions, topics, current)
    taken = frozenset().union(*kept.values()) if kept else frozenset()
    free = [
        (topic, partition)
        for topic in sorted(readers)
        for partition in range(topics[topic])
        if (topic, partition) not in taken
    ]
    wanted = {frozenset(filter(readers.__contains__, each)) for each in subscriptions.values()}
    if len(wanted) <= 1:
        return _fill_quotas(kept, free)
    return Balance(readers, kept).settle(free)


DEFAULT_ASSIGNOR = "uniform"
SERVER_ASSIGNORS: dict[str, Assignor] = {
    "uniform": assign_sticky,
    "sticky": assign_sticky,
    "range": assign_range,
    "roundrobin": assign_roundrobin,
}


def _subscribers(subscriptions: Subscriptions, topics: Mapping[str, int]) -> dict[str, list[str]]:
    """The members that subscribe to each topic, in order."""
    readers: dict[str, list[str]] = {}
    for member, wanted in subscriptions.items():
        for topic in wanted:
            if topic in topics:
                readers.setdefault(topic, []).append(member)
    return readers


def _kept(
    subscriptions: Subscriptions, topics: Mapping[str, int], current: Mapping[str, Partitions]
) -> Assignment:
    """What each member keeps: it exists, is subscribed to, and no earlier member claims it."""
    claimed: set[Partition] = set()
    kept: Assignment = {}
    for member, wanted in subscriptions.items():
        wanted = frozenset(wanted)
        kept[member] = frozenset(
            (topic, partition)
            for topic, partition in current.get(member, ())
            if topic in wanted
            and partition < topics.get(topic, 0)
            and (topic, partition) not in claimed
        )
        claimed |= kept[member]
    return kept


def _fill_quotas(kept: Assignment, free: list[Partition]) -> Assignment:
    """Give each member the average, rounded up or down, if all have the same subscription.

    The larger shares go to the members that have most already, so that as few as possible move.
    """
    if not kept:
        return {}
    total = len(free) + sum(map(len, kept.values()))
    size, larger = divmod(total, len(kept))
    by_count = sorted(kept, key=lambda member: -len(kept[member]))
    quotas = {member: size + (index < larger) for index, member in enumerate(by_count)}
    free = list(free)
    shares: dict[str, list[Partition]] = {}
    for member in kept:
        share = sorted(kept[member]) if len(kept[member]) > quotas[member] else list(kept[member])
        free.extend(share[quotas[member] :])
        shares[member] = share[: quotas[member]]
    free.sort(reverse=True)
    for member, share in shares.items():
        while len(share) < quotas[member]:
            share.append(free.pop())
    return {member: frozenset(share) for member, share in shares.items()}
