"""Looking at queues and at the lanes of topics; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from goqueue.broker.queues.host import HostedQueue
from goqueue.broker.queues.hosting import QueueHosts
from goqueue.broker.queues.records import RecordReader, read_soon
from goqueue.broker.topics.settings import lane_settings
from goqueue.broker.topics.topics import Topic, Topics
from goqueue.delivery import (
    LANE_COUNT,
    LANE_NAMES,
    PEEK_MESSAGES_MAX,
    LaneStats,
    MessageState,
    peek,
    stats,
)
from goqueue.model.batch import Record

PEEK_STRETCHES_MAX = 20  # in which a peek looks for messages that are not done


class PeekedMessage(NamedTuple):
    state: MessageState
    record: Record | None


class TopicLanes(NamedTuple):
    """The lanes of a topic: their rules, what the log holds, and each group's figures."""

    weights: Mapping[str, int]
    is_strict: bool
    starvation_ms: int
    stored: list[list[int]]  # records in each lane, by partition; none of those kept elsewhere
    groups: Mapping[str, Sequence[LaneStats]]


async def peek_at(
    reader: RecordReader, hosted: HostedQueue, number: int | None, offset: int | None, count: int
) -> list[PeekedMessage]:
    """Messages of one partition or of all; without an offset the first that are not done."""
    if number is not None:
        hosted.topic.partition(number)  # There must be one.
    numbers = range(len(hosted.sources)) if number is None else [number]
    found: list[PeekedMessage] = []
    for each in numbers:
        room = count - len(found)
        if room and offset is not None:
            found += await _peek(reader, hosted, each, offset, room)
        elif room:
            found += await _peek_open(reader, hosted, each, room)
    return found


async def _peek_open(
    reader: RecordReader, hosted: HostedQueue, number: int, count: int
) -> list[PeekedMessage]:
    """The first messages that are not done; the search ends after a bounded stretch."""
    end = hosted.sources[number].last_stable_offset
    at = hosted.queue.partitions[number].ledger.floor
    found: list[PeekedMessage] = []
    for _ in range(PEEK_STRETCHES_MAX):
        if at >= end or len(found) >= count:
            break
        seen = await _peek(reader, hosted, number, at, PEEK_MESSAGES_MAX)
        found += [one for one in seen if one.state.state != "done"]
        at += PEEK_MESSAGES_MAX
    return found[:count]


async def _peek(
    reader: RecordReader, hosted: HostedQueue, number: int, offset: int, count: int
) -> list[PeekedMessage]:
    source = hosted.sources[number]
    first = max(offset, source.start_offset)
    wanted = range(first, min(first + count, source.last_stable_offset))
    found = await read_soon(reader, lambda: hosted.sources[number], wanted)
    if found.error is not None and not found.parts:
        raise found.error
    records = found.records
    return [
        PeekedMessage(state, records[state.offset])
        for state in peek(hosted.queue, number, wanted)
        if state.offset in records
    ]


def lanes_of(hosts: QueueHosts, topics: Topics, topic: Topic, *, now_ms: int) -> TopicLanes:
    """How the lanes of a topic are set, what the copies here hold, and how each group fares."""
    rules = lane_settings(hosts.values(topic))
    lanes = hosts.sources.lanes
    kept = [not topic.is_internal and topics.keeps(one) for one in topic.partitions]
    for partition, is_kept in zip(topic.partitions, kept, strict=True):
        if is_kept:
            lanes.of(partition)
    lanes.catch_up()
    stored = [
        lanes.of(one).index.counts(one.start_offset, one.last_stable_offset)
        if is_kept
        else [0] * LANE_COUNT
        for one, is_kept in zip(topic.partitions, kept, strict=True)
    ]
    hosted = hosts.by_topic.get(topic.id, [])
    return TopicLanes(
        dict(zip(LANE_NAMES, rules.weights, strict=True)),
        rules.is_strict,
        rules.starvation_ms,
        [] if topic.is_internal else stored,
        {one.group: stats(one.queue, now_ms).lanes for one in hosted},
    )
