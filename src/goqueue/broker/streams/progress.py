"""The progress of stream groups: where they begin, what they commit, and their lag.

Coordinators have committed offsets but no partitions. Here the offsets are compared with the first
and end offsets that partition leaders report.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from goqueue.broker.reading.positions import At, Position, offset_at, times_of
from goqueue.broker.reading.remote import Bounds
from goqueue.broker.streams.coordinators import Groups
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.groups import (
    CommitOffsets,
    CommittedOffset,
    OffsetErrors,
    OffsetToCommit,
    Partition,
    Partitions,
)
from goqueue.loop.promise import Promise
from goqueue.model.errors import (
    GoQueueError,
    GroupNotEmpty,
    InvalidRequest,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.names import TopicPartition
from goqueue.model.tenants import TopicName

Start = Literal["earliest", "latest"]
Wanted = Mapping[str, Sequence[int]]  # partitions by topic


class Look(Protocol):
    """Gets the first and end offsets of partitions from their leaders."""

    def __call__(
        self,
        topic: Topic,
        numbers: Sequence[int],
        *,
        times_ms: Sequence[int] = (),
        may_guess: bool = False,
        with_records_end: bool = False,
    ) -> Coroutine[Promise[Any], None, Sequence[Bounds]]: ...


class PartitionLag(NamedTuple):
    """The number of offsets in a partition that a group has not yet read or acknowledged."""

    topic: TopicName
    partition: int
    offset: int | None  # where the group continues; None if it has committed nothing
    end_offset: int
    lag: int
    age_ms: int | None = None  # of the oldest message that is left; None: not known

    def at_level(self, level: int) -> Sequence[object]:
        """Return the fields that a node of an older release expects; see `portable`."""
        return tuple(self) if level > 2 else tuple(self)[:-1]


class FetchedOffsets(NamedTuple):
    """Committed offsets, and the partitions where an open transaction may change them."""

    offsets: dict[TopicName, dict[int, CommittedOffset]]
    unstable: Partitions = frozenset()
    refused: Mapping[TopicName, GoQueueError] = {}  # by topic


class ResetOffset(NamedTuple):
    """The committed offset of a partition before and after a reset."""

    partition: int
    offset_before: int | None
    offset: int


class StreamProgress:
    """The committed offsets of stream groups, related to their partitions."""

    def __init__(self, groups: Groups, topics: Topics, look: Look) -> None:
        self._groups = groups
        self._topics = topics
        self._look = look

    async def begin(self, group: str, topics: Iterable[str], *, start: Start) -> None:
        """Commit the start offset of a group, in partitions without a committed offset.

        Raise while an offset is pending in a transaction: the start offset would replace it.
        """
        found = [self._topics.get(name) for name in dict.fromkeys(topics)]
        wanted = {topic.name: range(len(topic.partitions)) for topic in found}
        await self._groups.confirm(group)
        committed = self._groups.fetch_offsets(group, wanted, require_stable=True)
        offsets = []
        for topic in found:
            known = committed.get(topic.name, {})
            numbers = [number for number in range(len(topic.partitions)) if number not in known]
            offsets += [
                OffsetToCommit(
                    topic=topic.name,
                    partition=one.name.partition,
                    offset=one.start_offset if start == "earliest" else one.last_stable_offset,
                )
                for one in await self._look(topic, numbers)
            ]
        if offsets:
            await self._commit_for_empty(group, offsets)

    async def commit(self, call: CommitOffsets) -> OffsetErrors:
        """Commit offsets; return an error for each partition where the commit is refused."""
        errors = self.missing((one.topic, one.partition) for one in call.offsets)
        if errors:
            known = [one for one in call.offsets if (one.topic, one.partition) not in errors]
            if not known:
                return OffsetErrors(errors)
            call = msgspec.structs.replace(call, offsets=known)
        await self._groups.ensure_topic()
        result = await self._groups.commit_offsets(call)
        return OffsetErrors({**errors, **result.errors})

    async def fetch(
        self,
        group: str,
        wanted: Wanted | None = None,
        *,
        member_id: str = "",
        member_epoch: int = -1,
        is_stable: bool = False,
    ) -> FetchedOffsets:
        """Return committed offsets, none older than this call."""
        await self._groups.confirm(group)
        offsets = self._groups.fetch_offsets(
            group, wanted, member_id=member_id, member_epoch=member_epoch
        )
        unstable = self._groups.unstable_offsets(group, wanted) if is_stable else frozenset()
        return FetchedOffsets(offsets, unstable)

    async def delete(self, group: str, wanted: Wanted) -> OffsetErrors:
        """Delete committed offsets; return an error for each partition where that is refused."""
        result = await self._groups.delete_offsets(group, wanted)
        places = ((topic, number) for topic, numbers in wanted.items() for number in numbers)
        return OffsetErrors({**self.missing(places), **result.errors})

    async def reset(
        self,
        group: str,
        topic_name: str,
        numbers: Sequence[int] | None,
        target: Position,
        *,
        is_dry_run: bool,
    ) -> list[ResetOffset]:
        """Move the committed offsets of a group without members, or only compute the new ones."""
        topic = self._topics.get(topic_name)
        numbers = numbers or range(len(topic.partitions))
        await self._groups.confirm(group)
        before = self._groups.fetch_offsets(group, {topic_name: numbers}).get(topic_name, {})
        bounds = await self._look(topic, numbers, times_ms=times_of([target]))
        targets = {one.name.partition: _offset_at(one, target) for one in bounds}
        if not is_dry_run:
            offsets = [
                OffsetToCommit(topic=topic_name, partition=number, offset=offset)
                for number, offset in targets.items()
            ]
            for error in (await self._commit_for_empty(group, offsets)).errors.values():
                raise error
        return [
            ResetOffset(number, before[number].offset if number in before else None, offset)
            for number, offset in targets.items()
        ]

    async def lag(self, group: str) -> list[PartitionLag]:
        """Return the lag of a group in every partition of the topics it reads."""
        await self._groups.confirm(group)
        committed = self._groups.fetch_offsets(group)
        lags = []
        for name in sorted({*committed, *self._groups.topics_read(group)}):
            topic = self._topics.find(name)
            if topic is None:
                continue  # The topic was deleted.
            numbers = range(len(topic.partitions))
            for one in await self._look(topic, numbers, may_guess=True, with_records_end=True):
                offset = committed.get(name, {}).get(one.name.partition)
                lags.append(_lag(one, None if offset is None else offset.offset))
        return lags

    def missing(self, places: Iterable[Partition]) -> dict[Partition, GoQueueError]:
        """Return an error for each of these partitions that does not exist."""
        errors: dict[Partition, GoQueueError] = {}
        for topic, number in places:
            found = self._topics.find(topic)
            if found is None:
                errors[topic, number] = UnknownTopic(topic)
            elif not 0 <= number < len(found.partitions):
                errors[topic, number] = UnknownPartition(TopicPartition(topic, number))
        return errors

    async def _commit_for_empty(self, group: str, offsets: list[OffsetToCommit]) -> OffsetErrors:
        """Commit without a member, which is refused while the group has members."""
        await self._groups.ensure_topic()
        try:
            return await self._groups.commit_offsets(CommitOffsets(group_id=group, offsets=offsets))
        except UnknownMember as error:
            # The coordinator requires a member id because the group has members.
            raise GroupNotEmpty(group) from error


def _offset_at(partition: Bounds, target: Position) -> int:
    start, end = partition.start_offset, partition.high_watermark
    if target.at is At.OFFSET and not start <= target.value <= end:
        raise InvalidRequest(
            f"Offset {target.value} is not in {partition.name}; choose one from {start} to {end}."
        )
    return offset_at(partition, target)


def _lag(partition: Bounds, offset: int | None) -> PartitionLag:
    start = partition.start_offset
    begin = start if offset is None else max(offset, start)
    return PartitionLag(
        partition.name.topic,
        partition.name.partition,
        offset,
        partition.high_watermark,
        max(0, partition.records_end() - begin),
    )
