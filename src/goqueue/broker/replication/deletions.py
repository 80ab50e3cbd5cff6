"""Waits until deleted records are deleted on every in-sync replica, and so cannot come back."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.cluster.facts import NO_LEADER
from goqueue.cluster.replication import ReplicaSet
from goqueue.loop.promise import Promise
from goqueue.model.errors import NotLeader, RequestTimedOut
from goqueue.partition import Partition

DELETION_TIMEOUT_MS = 30_000  # long enough for an unresponsive replica to leave the in-sync set


@dataclass(slots=True)
class Deletion:
    """A wait until no in-sync replica has the records before `offset`."""

    offset: int
    deadline_ms: int
    done: Promise[int] = field(default_factory=Promise)


def settle(
    waiting: list[Deletion], partition: Partition, replicas: ReplicaSet, now_ms: int
) -> list[Deletion]:
    """Answer the waits that are over, and return the others.

    The result of a wait is the lowest start offset of the in-sync replicas.
    """
    start, followers_start = partition.start_offset, replicas.low_watermark
    if followers_start is not None:
        start = min(start, followers_start)
    left = []
    for one in waiting:
        if start >= one.offset:
            one.done.resolve(start)
        elif now_ms >= one.deadline_ms:
            one.done.reject(
                RequestTimedOut(
                    f"Records of {partition.name} before {one.offset} are deleted, but not every "
                    "replica has confirmed it; retry to find out."
                )
            )
        else:
            left.append(one)
    return left


def abandon(waiting: list[Deletion], partition: Partition) -> None:
    """Fail the waits, because this node no longer leads."""
    for one in waiting:
        one.done.reject(NotLeader(partition.name, NO_LEADER))
