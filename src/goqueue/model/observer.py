"""One place to watch from: what happens to messages, and what is asked of the broker.

The core reports to an observer and does not know what it is for: metrics, journeys and the audit
log are observers. Everything about messages is reported per range of offsets, never per message,
once, by the node that leads the partition or owns the group, when it is committed. Without an
observer the cost is one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from goqueue.model.access import Action, Resource
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session

Range = tuple[int, int]  # the first offset, and the one after the last


class Outcome(StrEnum):
    """How a delivery, or a message that nobody took, ended for a group."""

    ACKED = "acked"
    RETRIED = "retried"  # nacked, or its lease expired: it is delivered again
    RELEASED = "released"  # nobody has seen it, and it is delivered again; that counts not
    EXPIRED = "expired"  # its time to live was over
    SKIPPED = "skipped"  # there is no such record any more, or it cannot be read


class Observer:
    """Ignores everything; an observer overrides what it is for."""

    # Partitions

    def stored(
        self, partition: TopicPartition, offsets: Range, *, size: int, session: Session | None
    ) -> None:
        """The leader has written records of a producer. Of whom, is not always known."""

    def replicated(self, partition: TopicPartition, offsets: Range) -> None:
        """Records are committed: all replicas in sync have them."""

    # Queue groups

    def delivered(
        self, group: str, partition: TopicPartition, ranges: Sequence[Range], *, consumer: str
    ) -> None:
        """A consumer has been given messages."""

    def settled(
        self, group: str, partition: TopicPartition, ranges: Sequence[Range], *, outcome: Outcome
    ) -> None:
        """Messages were acknowledged, given back, or are over."""

    def dead_lettered(self, group: str, partition: TopicPartition, ranges: Sequence[Range]) -> None:
        """Messages are in a dead-letter topic."""

    def redriven(self, source: TopicPartition, ranges: Sequence[Range]) -> None:
        """Dead letters are back in the topic that they came from."""

    # Schedules

    def scheduled(self, log: TopicPartition, offsets: Range) -> None:
        """Messages wait in the log of schedules until they are due."""

    def released(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        """Messages that waited are in their topics."""

    def cancelled(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        """Messages that waited will never appear."""

    # Calls

    def called(
        self, session: Session, operation: str, error: Exception | None, duration_ms: int
    ) -> None:
        """An operation was answered."""

    def denied(self, session: Session, action: Action, resource: Resource) -> None:
        """A session may not do this."""
