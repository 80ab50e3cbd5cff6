"""Keys of a topic that has grown: what must be finished before their newer messages are handed out.

A key goes to another partition once there are more of them. Its older messages stay where they
are, and a group that keeps the order of keys must finish those first. The leader of each old
partition tells the offset from which on nobody has used the old number of partitions; it tells it
when everything before that offset is committed, so that no later leader can fall short of it.
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
    end_offset: int  # END_UNKNOWN: not before its leader has told

    def is_met(self, finished_offset: int) -> bool:
        """Whether a group has finished enough; `finished_offset` is the first that is not done."""
        return self.end_offset != END_UNKNOWN and finished_offset >= self.end_offset


def needs_of(
    routing: RoutingFact | None,
    *,
    key: bytes | None,
    partition: int,
    offset: int,
    partition_count: int,
) -> list[Need]:
    """What must be finished before the message at this place may be handed out."""
    if routing is None or key is None:
        return []
    homes = [partition_of_key(key, epoch.partition_count) for epoch in routing.ended]
    homes.append(partition_of_key(key, partition_count))
    sent_in = _epoch_of(routing, homes, partition, offset)
    found: dict[int, Need] = {}
    for epoch, home in zip(routing.ended[:sent_in], homes, strict=False):
        if home != partition:
            # A partition that a key came to twice has its later end last.
            found[home] = Need(home, epoch.ends[home])
    return list(found.values())


def _epoch_of(routing: RoutingFact, homes: Sequence[int], partition: int, offset: int) -> int:
    """The number of growths that the sender of a message knew of.

    The same partition can be home to a key twice, so the offset has to decide. Whoever named the
    partition himself is taken for one who knew the present number.
    """
    for number, epoch in enumerate(routing.ended):
        if homes[number] == partition:
            end = epoch.ends[partition]
            if end == END_UNKNOWN or offset < end:
                return number
    return len(routing.ended)


def is_passed(routing: RoutingFact, finished: Callable[[int], int]) -> bool:
    """Whether a group has finished all old routing, so that it need not ask any more."""
    return all(
        Need(number, end).is_met(finished(number))
        for epoch in routing.ended
        for number, end in enumerate(epoch.ends)
    )


def is_settled(routing: RoutingFact | None) -> bool:
    """Whether all leaders have told where the last growth was."""
    return routing is None or END_UNKNOWN not in routing.ended[-1].ends


def grown(routing: RoutingFact | None, topic_id: bytes, partition_count: int) -> RoutingFact:
    """The routing of a topic that had `partition_count` partitions until now."""
    epoch = RoutingEpoch(partition_count, (END_UNKNOWN,) * partition_count)
    return RoutingFact(topic_id, ((*routing.ended, epoch) if routing else (epoch,)))


def ended_at(routing: RoutingFact, told: Mapping[int, int]) -> RoutingFact:
    """The routing after leaders of old partitions have told the ends; the first word counts."""
    last = routing.ended[-1]
    ends = list(last.ends)
    for number, end_offset in told.items():
        if ends[number] == END_UNKNOWN:
            ends[number] = end_offset
    if tuple(ends) == last.ends:
        return routing
    epoch = msgspec.structs.replace(last, ends=tuple(ends))
    return msgspec.structs.replace(routing, ended=(*routing.ended[:-1], epoch))
