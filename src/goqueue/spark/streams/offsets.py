"""The read position of a stream, as stored in Spark's checkpoint.

    {"group": "spark-orders-1f3a9c2e", "topics": {"orders": {"id": "9f…", "partitions": {"0": 23}}},
     "version": 1}

An offset is the next record of each partition. Spark compares offsets as text, so keys are always
in the same order. The id distinguishes a topic from a recreated one of the same name; the group is
where the broker shows the progress, and is stored so that it is the same after a restart.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition
from goqueue.spark import losses
from goqueue.spark.planning import OffsetRange, Snapshot

VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset of each partition, and the ids of their topics."""

    group: str
    ids: Mapping[str, str]
    positions: Mapping[TopicPartition, int]

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores; keys are sorted as text, on every level."""
        topics: dict[str, dict[str, Any]] = {
            name: {"id": self.ids[name], "partitions": {}} for name in sorted(self.ids)
        }
        for one in sorted(self.positions, key=lambda one: (one.topic, str(one.partition))):
            topics[one.topic]["partitions"][str(one.partition)] = self.positions[one]
        return {"group": self.group, "topics": topics, "version": VERSION}


def read_offset(found: Mapping[str, Any]) -> StreamOffset:
    """Parse the offset in a checkpoint."""
    try:
        if found["version"] != VERSION:
            raise InvalidRequest(
                f"The checkpoint is of version {found['version']} and this source reads version "
                f"{VERSION}; use the GoQueue that wrote it, or begin with a new checkpoint."
            )
        topics = found["topics"]
        return StreamOffset(
            str(found["group"]),
            {name: str(one["id"]) for name, one in topics.items()},
            {
                TopicPartition(name, int(number)): int(offset)
                for name, one in topics.items()
                for number, offset in one["partitions"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(
            "The checkpoint holds no offset of this source; it may be another source's. Begin with "
            "a new checkpoint."
        ) from error


def new_group(prefix: str, topics: str) -> str:
    """Return a generated, unique group name for a query, from its topics."""
    return f"{prefix}-{topics[:100]}-{uuid.uuid4().hex[:8]}"


def reconcile(begun: StreamOffset, seen: Snapshot) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return where a stream continues in each existing partition, and what it has lost.

    A new partition is read from its log start.
    """
    positions: dict[TopicPartition, int] = {}
    found = [losses.gone(f"Topic {topic!r}") for topic in begun.ids if topic not in seen.ids]
    remade = {topic for topic, known in begun.ids.items() if seen.ids.get(topic, known) != known}
    found += [losses.recreated(topic) for topic in sorted(remade)]
    for one, offset in begun.positions.items():
        if one.topic in remade or one.topic not in seen.ids:
            continue
        kept = seen.kept.get(one)
        if kept is None:
            found.append(losses.gone(one))
            continue
        if offset < kept.start:
            found.append(losses.expired(one, offset, kept.start))
        elif offset > kept.end:
            found.append(losses.truncated(one, offset, kept.end))
        positions[one] = min(max(offset, kept.start), kept.end)
    for one, kept in seen.kept.items():
        positions.setdefault(one, kept.start)
    return positions, found


def batch_ranges(
    begun: StreamOffset, end: StreamOffset, seen: Snapshot
) -> tuple[list[OffsetRange], list[str]]:
    """Return the ranges of a planned batch that can still be read, and what is lost of it.

    A batch that was planned before a restart is planned again identically, however long ago.
    """
    found = []
    for topic, known in sorted(end.ids.items()):
        if topic not in seen.ids:
            found.append(losses.gone(f"Topic {topic!r}"))
        elif seen.ids[topic] != known:
            found.append(losses.recreated(topic))
    ranges = []
    for one, last in sorted(end.positions.items(), key=lambda item: item[0]):
        if seen.ids.get(one.topic) != end.ids[one.topic]:
            continue
        kept = seen.kept.get(one)
        if kept is None:
            found.append(losses.gone(one))
            continue
        is_known = begun.ids.get(one.topic) == end.ids[one.topic]
        first = begun.positions.get(one, kept.start) if is_known else kept.start
        start, stop = max(first, kept.start), min(last, kept.end)
        if first < min(kept.start, last):
            found.append(losses.expired(one, first, min(kept.start, last)))
        if first < last and last > kept.end:
            found.append(losses.truncated(one, last, kept.end))
        if start < stop:
            ranges.append(OffsetRange(one, start, stop, end.ids[one.topic]))
    return ranges, found
