"""Order of keys in a topic that has grown: what must be finished before newer messages.

With more partitions a key moves to another partition. Its older messages stay where they are, and a
group that keeps the order of keys must finish those first. The leader of each old partition reports
the offset from which no producer used the old partition count. It reports it only when everything
before that offset is committed, so that no later leader has a shorter log.

This is the decision alone: leaders do not report yet, and groups do not wait. So growing a topic
must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from goqueue.cluster.facts import END_UNKNOWN, RoutingEpoch, RoutingFact
from goqueue.model.key_hash import partition_of_key

ROUTING_EPOCHS_MAX = 64  # how often a topic can grow


class Need(NamedTuple):
    """A partition that must be finished up to an offset, which may not be known yet."""

    partition: int
    end_offset: int  # END_UNKNOWN until its leader has reported it

    def is_met(self, finished_offset: int) -> bool:
        """Return whether a group has finished enough; `finished_offset` is its first open one."""
        return self.end_offset != END_UNKNOWN and finished_offset >= self.end_offset


def needs_of(
    routing: RoutingFact | None,
    *,
    key: bytes | None,
    partition: int,
    offset: int,
    partition_count: int,
) -> list[Need]:
    """Return what must be finished before the message at this position may be delivered."""
    if routing is None or key is None:
        return []
    homes = [partition_of_key(key, epoch.partition_count) for epoch in routing.ended]
    homes.append(partition_of_key(key, partition_count))
    sent_in = _epoch_of(routing, homes, partition, offset)
    found: dict[int, Need] = {}
    for epoch, home in zip(routing.ended[:sent_in], homes, strict=False):
        if home != partition:
            # If a key came to a partition twice, the later end is stored last and replaces the
            # earlier.
            found[home] = Need(home, epoch.ends[home])
    return list(found.values())


def _epoch_of(routing: RoutingFact, homes: Sequence[int], partition: int, offset: int) -> int:
    """Return the routing epoch in which a message was sent.

    A key can return to an earlier partition, so the offset has to decide. A message whose sender
    chose the partition explicitly counts as sent in the current epoch.
    """
    for number, epoch in enumerate(routing.ended):
        if homes[number] == partition:
            end = epoch.ends[partition]
            if end == END_UNKNOWN or offset < end:
                return number
    return len(routing.ended)


def is_passed(routing: RoutingFact, finished: Callable[[int], int]) -> bool:
    """Return whether a group has finished all old routing, so that it needs no more checks."""
    return all(
        Need(number, end).is_met(finished(number))
        for epoch in routing.ended
        for number, end in enumerate(epoch.ends)
    )


def grown(routing: RoutingFact | None, topic_id: bytes, partition_count: int) -> RoutingFact:
    """Return the routing of a topic that had `partition_count` partitions until now."""
    epoch = RoutingEpoch(partition_count, (END_UNKNOWN,) * partition_count)
    return RoutingFact(topic_id, ((*routing.ended, epoch) if routing else (epoch,)))


def ended_at(routing: RoutingFact, told: Mapping[int, int]) -> RoutingFact:
    """Record the ends that leaders of old partitions report; the first report counts."""
    last = routing.ended[-1]
    ends = list(last.ends)
    for number, end_offset in told.items():
        if ends[number] == END_UNKNOWN:
            ends[number] = end_offset
    if tuple(ends) == last.ends:
        return routing
    epoch = msgspec.structs.replace(last, ends=tuple(ends))
    return msgspec.structs.replace(routing, ended=(*routing.ended[:-1], epoch))
