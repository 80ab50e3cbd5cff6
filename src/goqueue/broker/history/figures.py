"""What the topics and groups of a node look like now: sizes, rates, members, lag.

Each node knows the partitions that it leads and the groups that it owns. Figures of a few are
computed when they are asked for; those of all, which sorting by a figure needs, are computed in
slices of the event loop and used again for some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from goqueue.delivery import Backlog, backlog
from goqueue.loop.promise import Promise, promised
from goqueue.loop.turns import turn
from goqueue.model.tenants import GroupName, TopicName

if TYPE_CHECKING:
    from goqueue.broker.metrics.lag import GroupLag, PartitionBehind
    from goqueue.broker.queues.groups import QueueGroups
    from goqueue.broker.queues.host import HostedQueue
    from goqueue.broker.replication.leaders import Leaders
    from goqueue.broker.streams.coordinators import Groups
    from goqueue.broker.topics.topics import Topic, Topics
    from goqueue.groups.group import Group
    from goqueue.loop.clock import Clock

PER_SLICE = 200  # partitions of groups
SUMS_PER_SLICE = 2_000
REUSED_MS = 5_000  # for how long figures of all groups are used again, at least
# Figures are used again for as many times as long as computing them took, however often they are
# asked for; but not for longer than the limit, as a leader that is away makes it take long, too.
SHARE = 50
REUSED_MS_MAX = 60_000


class TopicFigures(NamedTuple):
    """What one node has of a topic, or all nodes together."""

    name: TopicName
    messages: int = 0
    size: int = 0
    in_per_s: float = 0.0
    in_bytes_per_s: float = 0.0
    out_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    groups: int = 0
    lag: int = 0  # of the group that is furthest behind


class GroupFigures(NamedTuple):
    """How many members a group has, and how far it is behind."""

    name: GroupName
    members: int = 0
    topics: int = 0
    lag: int = 0
    lag_ms: int | None = None  # the age of the oldest message that is left; None: not known
    in_flight: int = 0


class _OfTopic(NamedTuple):
    groups: int
    lag: int


class _All(NamedTuple):
    """The figures of all groups of this node, and what they make for topics."""

    groups: dict[str, GroupFigures]
    topics: dict[str, _OfTopic]


class NodeParts(NamedTuple):
    """The parts of a node whose figures these are."""

    clock: Clock
    topics: Topics
    leaders: Leaders
    groups: Groups
    queue_groups: QueueGroups


class Figures:
    """The figures of what this node leads and owns."""

    def __init__(self, parts: NodeParts, lag: Callable[[], GroupLag]) -> None:
        """`lag` returns what knows the lag of stream groups; it is loaded at its first use."""
        self.parts = parts
        self._lag = lag
        self._all: Promise[_All] | None = None
        self._reused_until_ms = 0

    # Topics

    def topic(self, found: Topic) -> TopicFigures:
        """Return what the partitions that this node leads contain."""
        messages = size = 0
        leaders = self.parts.leaders
        for partition in found.partitions:
            if not partition.is_following and leaders.is_here(found, partition.name.partition):
                messages += max(0, partition.high_watermark - partition.start_offset)
                size += partition.log.size
        return TopicFigures(found.name, messages, size)

    async def readers(self) -> Mapping[str, _OfTopic]:
        """Return how many groups of this node read each topic, and the largest lag."""
        return (await self.all()).topics

    # Groups

    def all(self) -> Promise[_All]:
        """Return the figures of all groups of this node, some seconds old.

        They are as much older as computing them takes longer, up to a limit.
        """
        known = self._all
        if known is None or (known.is_done and self.parts.clock.now_ms() >= self._reused_until_ms):
            known = self._all = promised(self._look_again())
        return known

    async def _look_again(self) -> _All:
        clock = self.parts.clock
        begin_ms = clock.now_ms()
        self._reused_until_ms = begin_ms + REUSED_MS
        found = await self._look_at_all()
        cost_ms = clock.now_ms() - begin_ms
        reused_ms = min(SHARE * cost_ms, REUSED_MS_MAX)
        self._reused_until_ms = max(self._reused_until_ms, clock.now_ms() + reused_ms)
        return found

    def stream_groups(self) -> Iterator[Group]:
        """Yield the stream groups that this node coordinates."""
        return _each(self.parts.groups)

    def has_groups(self) -> bool:
        parts = self.parts
        return any(True for _ in _each(parts.groups)) or bool(parts.queue_groups.hosted_here())

    def of_all(self) -> Promise[Mapping[str, GroupFigures]]:
        async def groups() -> Mapping[str, GroupFigures]:
            return (await self.all()).groups

        return promised(groups())

    async def of(
        self, names: Collection[str], *, topic: str | None = None
    ) -> dict[str, GroupFigures]:
        """Return the figures of some groups that this node owns; of one topic, if it is given."""
        wanted = set(names)
        streams = [one for name in wanted if (one := _find(self.parts.groups, name)) is not None]
        behind = await self._lag().look(streams) if streams else []
        if topic is not None:
            behind = [one for one in behind if one.topic == topic]
        figures = await self._figures(streams, behind)
        queues = [
            one
            for one in self.parts.queue_groups.hosted_here()
            if one.group in wanted and topic in (None, one.topic.name)
        ]
        return figures.groups | (await self._of_queues(queues)).groups

    async def ages_ms(self, group: str) -> dict[tuple[str, int], int]:
        """Return the age of the oldest message that a group of this node has left, by partition."""
        ages_ms: dict[tuple[str, int], int] = {}
        found = _find(self.parts.groups, group)
        streams = [] if found is None else [found]
        now_ms = self.parts.clock.wall_ms()
        for one in await self._lag().look(streams) if streams else []:
            if one.messages > 0 and one.time_ms >= 0:
                ages_ms[one.topic, one.number] = max(0, now_ms - one.time_ms)
        now_ms = self.parts.clock.monotonic_ms()
        for hosted in self.parts.queue_groups.hosted_here():
            if hosted.group == group:
                for number, partition in enumerate(hosted.queue.partitions):
                    left = backlog(partition, now_ms)
                    if left.messages > 0:
                        ages_ms[hosted.topic.name, number] = left.oldest_age_ms
        return ages_ms

    async def _look_at_all(self) -> _All:
        streams = list(_each(self.parts.groups))
        behind: Iterable[PartitionBehind] = ()
        if streams:
            lag = self._lag()
            await lag.refresh()
            behind = lag.known()
        found = await self._figures(streams, behind)
        queues = await self._of_queues(self.parts.queue_groups.hosted_here())
        found.groups.update(queues.groups)
        for topic, one in queues.topics.items():
            known = found.topics.get(topic, _OfTopic(0, 0))
            found.topics[topic] = _OfTopic(known.groups + one.groups, max(known.lag, one.lag))
        return found

    async def _figures(self, groups: Collection[Group], behind: Iterable[PartitionBehind]) -> _All:
        """Add up the partitions of stream groups."""
        now_ms = self.parts.clock.wall_ms()
        sums = _Sums()
        for number, one in enumerate(behind):
            if number % PER_SLICE == PER_SLICE - 1:
                await turn(self.parts.clock)
            age_ms = max(0, now_ms - one.time_ms) if one.time_ms >= 0 else None
            sums.add(one.group, one.topic, one.messages, age_ms)
        for number, group in enumerate(groups):
            if number % PER_SLICE == PER_SLICE - 1:
                await turn(self.parts.clock)
            sums.members(group.group_id, group.membership.member_count)
        return await sums.all(self.parts.clock)

    async def _of_queues(self, queues: Collection[HostedQueue]) -> _All:
        """Add up the partitions of queue groups."""
        sums = _Sums()
        for hosted in queues:
            now_ms = self.parts.clock.monotonic_ms()
            for number, partition in enumerate(list(hosted.queue.partitions)):
                if number % PER_SLICE == PER_SLICE - 1:
                    await turn(self.parts.clock)
                one: Backlog = backlog(partition, now_ms)
                sums.add(hosted.group, hosted.topic.name, one.messages, one.oldest_age_ms)
                sums.in_flight(hosted.group, one.in_flight)
            consumers = {lease.consumer for lease in hosted.queue.leases}
            sums.members(hosted.group, len(consumers))
            await turn(self.parts.clock)
        return await sums.all(self.parts.clock)


class _Sums:
    """Sums by group and by topic, while they are added up."""

    def __init__(self) -> None:
        self._lag: dict[tuple[str, str], int] = {}
        self._age_ms: dict[str, int] = {}
        self._members: dict[str, int] = {}
        self._in_flight: dict[str, int] = {}

    def add(self, group: str, topic: str, messages: int, age_ms: int | None) -> None:
        key = group, topic
        self._lag[key] = self._lag.get(key, 0) + max(0, messages)
        if messages > 0 and age_ms is not None:
            self._age_ms[group] = max(self._age_ms.get(group, 0), age_ms)

    def members(self, group: str, count: int) -> None:
        self._members[group] = self._members.get(group, 0) + count

    def in_flight(self, group: str, count: int) -> None:
        self._in_flight[group] = self._in_flight.get(group, 0) + count

    async def all(self, clock: Clock) -> _All:
        lag: dict[str, int] = {}
        count: dict[str, int] = {}
        topics: dict[str, _OfTopic] = {}
        for number, ((group, topic), messages) in enumerate(self._lag.items()):
            if number % SUMS_PER_SLICE == SUMS_PER_SLICE - 1:
                await turn(clock)
            lag[group] = lag.get(group, 0) + messages
            count[group] = count.get(group, 0) + 1
            known = topics.get(topic, _OfTopic(0, 0))
            topics[topic] = _OfTopic(known.groups + 1, max(known.lag, messages))
        groups: dict[str, GroupFigures] = {}
        for number, name in enumerate({**self._members, **lag}):
            if number % SUMS_PER_SLICE == SUMS_PER_SLICE - 1:
                await turn(clock)
            groups[name] = GroupFigures(
                name,
                self._members.get(name, 0),
                count.get(name, 0),
                lag.get(name, 0),
                self._age_ms.get(name, None if lag.get(name) else 0),
                self._in_flight.get(name, 0),
            )
        return _All(groups, topics)


def _each(groups: Groups) -> Iterator[Group]:
    """Yield the stream groups that this node coordinates."""
    for shard in list(groups.shards):
        yield from shard.machine.groups()


def _find(groups: Groups, name: str) -> Group | None:
    """Return a stream group if this node coordinates it."""
    for shard in list(groups.shards):
        found = shard.machine.find(name)
        if found is not None:
            return found
    return None
