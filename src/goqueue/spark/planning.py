"""From options to offset ranges, and from ranges to the tasks that read them.

Runs on the driver, when a table is loaded or a micro-batch is planned. Requests the offsets and
sizes of partitions from a broker; reads no records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from goqueue.client import LogClient, PartitionRange, Position, TopicView
from goqueue.client.offsets import NO_OFFSET
from goqueue.model.errors import (
    AccessDenied,
    InvalidRequest,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.model.names import TopicPartition
from goqueue.spark.options import EARLIEST, LATEST, ByPartition, ReadOptions, Start

TASKS_PER_PARTITION_MAX = 4096


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from `start` to `end`, exclusive."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: str = ""  # a topic of this name with another id is a different topic
    is_first: bool = True  # whether this is the first piece of a split range

    @property
    def count(self) -> int:
        return self.end - self.start


class Snapshot(NamedTuple):
    """Topics at one moment: their ids, and the retained range of each partition."""

    ids: Mapping[str, str]
    kept: Mapping[TopicPartition, PartitionRange]


def look(client: LogClient, options: ReadOptions, *, skips_missing: bool = False) -> Snapshot:
    """Return the partitions that the options name, in order.

    A partition that does not exist is an error, or omitted with `skips_missing`.
    """
    views = client.cluster.retrying(lambda: _topic_views(client, options, skips_missing))
    partitions = _chosen_partitions(views, options, skips_missing)
    kept = client.offsets.ranges(partitions, is_committed_only=options.is_committed_only)
    return Snapshot({view.name: view.id.hex() for view in views}, kept)


def _topic_views(client: LogClient, options: ReadOptions, skips_missing: bool) -> list[TopicView]:
    if options.pattern is not None:
        pattern = re.compile(options.pattern)
        return [
            view
            for view in client.cluster.topics()
            if not view.is_internal and pattern.fullmatch(view.name)
        ]
    views = []
    for name in options.topics or sorted(options.assigned):
        try:
            views.append(client.cluster.topic(name))
        except UnknownTopic:
            if not skips_missing:
                raise
    return views


def _chosen_partitions(
    views: Sequence[TopicView], options: ReadOptions, skips_missing: bool
) -> list[TopicPartition]:
    found = [partition for view in views for partition in view.names]
    if options.assigned:
        there = set(found)
        named = [
            TopicPartition(topic, number)
            for topic, numbers in options.assigned.items()
            for number in numbers
        ]
        found = [one for one in named if one in there]
        if len(found) < len(named) and not skips_missing:
            raise UnknownPartition(next(one for one in named if one not in there))
    if options.partitions is not None:
        found = [one for one in found if one.partition in options.partitions]
    return sorted(found, key=lambda one: (one.topic, one.partition))


# Ranges


def chosen_ranges(client: LogClient, options: ReadOptions, seen: Snapshot) -> list[OffsetRange]:
    """Return the ranges of a table at this moment."""
    starts = position_offsets(client, seen.kept, options.start, options)
    ends = position_offsets(client, seen.kept, options.end, options)
    return [
        OffsetRange(one, starts[one], ends[one], seen.ids[one.topic])
        for one in seen.kept
        if ends[one] > starts[one]
    ]


def position_offsets(
    client: LogClient,
    kept: Mapping[TopicPartition, PartitionRange],
    start: Start,
    options: ReadOptions,
) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition, within the retained range."""
    _check_named(start.offsets, kept, "offsets")
    _check_named(start.timestamps, kept, "timestamps")
    found = {
        one: _position_offset(one, bounds, start, options.fails_on_data_loss)
        for one, bounds in kept.items()
    }
    times = {
        one: Position.at_time(timestamp_ms)
        for one in kept
        if (timestamp_ms := _timestamp_of(one, start)) is not None
    }
    if times:
        for one, answer in client.offsets.find(times).items():
            if answer.offset == NO_OFFSET and start.needs_match:
                raise InvalidRequest(
                    f"{one} has no record from the starting time on; choose an earlier time, or "
                    "set startingOffsetsByTimestampStrategy to latest to begin at the end."
                )
            offset = kept[one].end if answer.offset == NO_OFFSET else answer.offset
            found[one] = _within(offset, kept[one])
    return found


def _position_offset(
    partition: TopicPartition, kept: PartitionRange, start: Start, fails_on_data_loss: bool
) -> int:
    offset = start.offsets.get(partition.topic, {}).get(partition.partition)
    if offset is None and start.offset is not None:
        return _within(start.offset, kept)
    if offset is None:
        offset = start.fallback
    if offset == EARLIEST:
        return kept.start
    if offset == LATEST:
        return kept.end
    if fails_on_data_loss and not kept.start <= offset <= kept.end:
        raise OffsetOutOfRange(partition, offset, start=kept.start, end=kept.end)
    return _within(offset, kept)


def _within(offset: int, kept: PartitionRange) -> int:
    return min(max(offset, kept.start), kept.end)


def _timestamp_of(partition: TopicPartition, start: Start) -> int | None:
    own = start.timestamps.get(partition.topic, {}).get(partition.partition)
    return start.timestamp_ms if own is None else own


def _check_named(
    named: ByPartition, kept: Mapping[TopicPartition, PartitionRange], what: str
) -> None:
    if strangers := sorted(map(str, _named_partitions(named) - kept.keys())):
        raise InvalidRequest(
            f"The {what} name {', '.join(strangers)}, which this table does not read; take them "
            "out, or subscribe to their topics."
        )


def check_complete(options: ReadOptions, seen: Snapshot) -> None:
    """Refuse option maps that omit partitions, as Kafka's source does."""
    for start in (options.start, options.end):
        for named, ends in (
            (start.offsets, " (-1 is the latest, -2 the earliest)"),
            (start.timestamps, ""),
        ):
            missing = sorted(map(str, seen.kept.keys() - _named_partitions(named)))
            if named and missing:
                raise InvalidRequest(
                    f"The offsets or times say nothing of {', '.join(missing)}; name every "
                    f"partition{ends}."
                )


def _named_partitions(named: ByPartition) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, numbers in named.items() for number in numbers}


# Tasks


def record_bytes(client: LogClient, seen: Snapshot) -> dict[TopicPartition, float]:
    """Return the mean bytes on disk per record, where brokers report it.

    They report sizes to those who may DESCRIBE the cluster, which a user that may read topics need
    not have, and a user of a tenant never has. Reading does not depend on them.
    """
    topics: dict[str, list[int]] = {}
    for one in seen.kept:
        topics.setdefault(one.topic, []).append(one.partition)
    sizes: dict[TopicPartition, int] = {}
    try:
        folders = client.nodes.log_dirs(topics) if topics else []
    except AccessDenied:
        folders = []
    for folder in folders:
        for partition, size in folder.sizes.items():
            sizes[partition] = max(size, sizes.get(partition, 0))
    return {
        one: sizes[one] / (kept.end - kept.start)
        for one, kept in seen.kept.items()
        if one in sizes and kept.end > kept.start
    }


def split(
    ranges: Sequence[OffsetRange], sizes: Mapping[TopicPartition, float], options: ReadOptions
) -> list[OffsetRange]:
    """Split ranges into tasks, by `splitBytes`, `maxRecordsPerPartition` and `minPartitions`.

    `sizes` are bytes per record. A range is split into at most TASKS_PER_PARTITION_MAX tasks.
    """
    total = sum(one.count for one in ranges)
    tasks: list[OffsetRange] = []
    for one in ranges:
        pieces = -(-int(sizes.get(one.partition, 0) * one.count) // options.split_bytes)
        if options.records_per_task_max is not None:
            pieces = max(pieces, -(-one.count // options.records_per_task_max))
        if total:
            pieces = max(pieces, -(-options.tasks_min * one.count // total))
        tasks += _cut(one, max(1, min(pieces, one.count, TASKS_PER_PARTITION_MAX)))
    return tasks


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Split into pieces whose lengths differ by at most one record."""
    bounds = [whole.start + whole.count * number // pieces for number in range(pieces + 1)]
    return [
        replace(whole, start=start, end=end, is_first=start == whole.start)
        for start, end in pairwise(bounds)
    ]
