"""An epoch of a queue: exactly which messages it contains, as stored in Spark's checkpoint.

    {"epoch": 7, "group": "workers", "kind": "queue", "query": "spark-queue-1f3a9c2e", "run": 1,
     "topics": {"orders": {"id": "9f…", "partitions": {"0": [[23, 40, 1, "normal"]]}}},
     "transaction": "AZ4Q…", "version": 1}

The offset of another source is its read position. Messages of a queue arrive in no order, so this
one lists the messages of its epoch: runs of offsets (first, and the one after the last) with the
same delivery count and priority. When the epoch is repeated, it is read again from this list. The
transaction holds the messages on the broker until the epoch is committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from goqueue.model.errors import InvalidRequest
from goqueue.model.names import TopicPartition

VERSION = 1
KIND = "queue"
NO_EPOCH = -1
# Records in a gap that are read and dropped rather than skipped: about the cost of a request.
GAP_RECORDS_MAX = 5_000


class Run(NamedTuple):
    """Adjacent messages with the same delivery count and priority."""

    first: int
    end: int
    deliveries: int
    priority: str

    @property
    def length(self) -> int:
        return self.end - self.first


class MessagePosition(NamedTuple):
    """One received message."""

    partition: TopicPartition
    offset: int
    deliveries: int
    priority: str


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The messages of one epoch, and the transaction that holds them."""

    group: str
    query: str
    run: int = 0
    epoch: int = NO_EPOCH
    transaction: str = ""  # empty before the first epoch
    ids: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[TopicPartition, Sequence[Run]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(run.length for runs in self.runs.values() for run in runs)

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores; keys are sorted as text, on every level."""
        topics: dict[str, dict[str, Any]] = {
            name: {"id": self.ids[name], "partitions": {}} for name in sorted(self.ids)
        }
        for one in sorted(self.runs, key=lambda one: (one.topic, str(one.partition))):
            topics[one.topic]["partitions"][str(one.partition)] = [list(r) for r in self.runs[one]]
        return {
            "epoch": self.epoch,
            "group": self.group,
            "kind": KIND,
            "query": self.query,
            "run": self.run,
            "topics": topics,
            "transaction": self.transaction,
            "version": VERSION,
        }


def before_all(group: str) -> QueueOffset:
    """Return the start of a new query, with a unique name."""
    return QueueOffset(group, f"spark-queue-{uuid.uuid4().hex[:16]}")


def read_queue_offset(found: Mapping[str, Any]) -> QueueOffset:
    """Parse the offset in a checkpoint."""
    try:
        if found.get("kind") != KIND:
            raise InvalidRequest(
                "The checkpoint is of a stream that did not read as a queue; begin with a new "
                "checkpoint, or leave the option queue.group out."
            )
        if found["version"] != VERSION:
            raise InvalidRequest(
                f"The checkpoint is of version {found['version']} and this source reads version "
                f"{VERSION}; use the GoQueue that wrote it, or begin with a new checkpoint."
            )
        topics = found["topics"]
        return QueueOffset(
            str(found["group"]),
            str(found["query"]),
            int(found["run"]),
            int(found["epoch"]),
            str(found["transaction"]),
            {name: str(one["id"]) for name, one in topics.items()},
            {
                TopicPartition(name, int(number)): tuple(_read_run(run) for run in runs)
                for name, one in topics.items()
                for number, runs in one["partitions"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequest(
            "The checkpoint holds no readable epoch of a queue; begin with a new checkpoint."
        ) from error


def _read_run(found: Sequence[Any]) -> Run:
    first, end, deliveries, priority = found
    return Run(int(first), int(end), int(deliveries), str(priority))


def runs_of(positions: Iterable[MessagePosition]) -> dict[TopicPartition, list[Run]]:
    """Group messages into runs by partition and offset; they may be in any order."""
    found: dict[TopicPartition, list[Run]] = {}
    for partition, offset, deliveries, priority in positions:
        found.setdefault(partition, []).append(Run(offset, offset + 1, deliveries, priority))
    return {partition: _joined(sorted(found[partition])) for partition in sorted(found)}


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Merge into as few runs as possible."""
    joined = [runs[0]]
    for run in runs[1:]:
        first, end, deliveries, priority = joined[-1]
        if run[0] == end and run[2] == deliveries and run[3] == priority:
            joined[-1] = Run(first, run[1], deliveries, priority)
        else:
            joined.append(run)
    return joined


# Tasks


@dataclass(frozen=True, slots=True)
class Share:
    """The runs of one partition that one task reads."""

    partition: TopicPartition
    topic_id: str
    runs: Sequence[Run]


def shares(offset: QueueOffset, *, tasks_min: int, records_max: int | None) -> list[Share]:
    """Split an epoch into at least `tasks_min` tasks, of at most `records_max` messages each."""
    total = offset.count
    found: list[Share] = []
    for one, runs in sorted(offset.runs.items()):
        count = sum(run.length for run in runs)
        pieces = -(-tasks_min * count // total)
        if records_max is not None:
            pieces = max(pieces, -(-count // records_max))
        pieces = max(1, min(pieces, count))
        bounds = [count * number // pieces for number in range(pieces + 1)]
        topic_id = offset.ids[one.topic]
        found += [Share(one, topic_id, _between(runs, *ends)) for ends in pairwise(bounds)]
    return found


def _between(runs: Sequence[Run], first: int, end: int) -> list[Run]:
    """Return the messages from index `first` to `end`, exclusive."""
    chosen: list[Run] = []
    before = 0
    for run in runs:
        start, stop = max(first - before, 0), min(end - before, run.length)
        if start < stop:
            chosen.append(run._replace(first=run.first + start, end=run.first + stop))
        before += run.length
    return chosen


def spans(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """Return the ranges to read; the gaps between them are too large to read through."""
    found: list[tuple[int, int]] = []
    for run in runs:
        if found and run.first - found[-1][1] <= GAP_RECORDS_MAX:
            found[-1] = (found[-1][0], run.end)
        else:
            found.append((run.first, run.end))
    return found
