"""The observer interface: reports what happens to messages, and the calls to the broker.

The core reports to an observer without knowledge of its purpose: metrics, journeys and the audit
log are observers. Events of messages are reported per range of offsets, never per message, once, by
the leader of the partition or the owner of the group, when they are committed. Without an observer
the cost is one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from goqueue.model.access import Action, Resource
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session

Range = tuple[int, int]  # the first offset, and the one after the last


class Outcome(StrEnum):
    """How a delivery, or an undelivered message, ended for a group."""

    ACKED = "acked"
    RETRIED = "retried"  # nacked, or its lease expired: it is delivered again
    RELEASED = "released"  # delivered again without having been seen; the attempt does not count
    EXPIRED = "expired"  # its time to live was exceeded
    SKIPPED = "skipped"  # the record no longer exists, or cannot be read


class Observer:
    """Ignores everything; an observer overrides the events it needs."""

    # Partitions

    def stored(
        self, partition: TopicPartition, offsets: Range, *, size: int, session: Session | None
    ) -> None:
        """The leader has written records of a producer. The session is not always known."""

    def replicated(self, partition: TopicPartition, offsets: Range) -> None:
        """Records are committed: all in-sync replicas have them."""

    # Queue groups

    def delivered(
        self, group: str, partition: TopicPartition, ranges: Sequence[Range], *, consumer: str
    ) -> None:
        """Messages were delivered to a consumer."""

    def settled(
        self, group: str, partition: TopicPartition, ranges: Sequence[Range], *, outcome: Outcome
    ) -> None:
        """Messages were acknowledged, returned or skipped, or have expired."""

    def dead_lettered(self, group: str, partition: TopicPartition, ranges: Sequence[Range]) -> None:
        """Messages are in a dead-letter topic."""

    def redriven(self, source: TopicPartition, ranges: Sequence[Range]) -> None:
        """Dead letters are back in their original topic."""

    # Schedules

    def scheduled(self, log: TopicPartition, offsets: Range) -> None:
        """Messages are stored in the schedule log until they are due."""

    def released(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        """Scheduled messages are in their topics."""

    def cancelled(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        """Scheduled messages were cancelled."""

    # Calls

    def called(
        self, session: Session, operation: str, error: Exception | None, duration_ms: int
    ) -> None:
        """An operation has completed."""

    def denied(self, session: Session, action: Action, resource: Resource) -> None:
        """A session was denied an action."""
