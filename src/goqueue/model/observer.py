"""The observer interface: reports what happens to messages, and the calls to the broker.

The core reports to an observer without knowledge of its purpose: metrics, journeys and the audit
log are observers. Events of messages are reported per range of offsets, never per message, once, by
the leader of the partition or the owner of the group, when they are committed. Calls are reported
by the node that received them, except that a denial is reported by the node that denied.

A node has one observer, which may consist of several. Each part of a node gets it only if it
overrides an event of that part; without one the cost is one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from goqueue.model.access import Access, Action, Resource
from goqueue.model.names import TopicPartition
from goqueue.model.session import Session

Range = tuple[int, int]  # the first offset, and the one after the last


class Outcome(StrEnum):
    """How a delivery, or an undelivered message, ended for a group."""

    ACKED = "acked"
    NACKED = "nacked"  # by its consumer; delivered again, or a dead letter after the last attempt
    LEASE_EXPIRED = "lease_expired"  # the same, because the consumer did not settle it in time
    REJECTED = "rejected"  # by its consumer, for good: it becomes a dead letter
    ABORTED = "aborted"  # the transaction that acknowledged it was aborted: delivered again
    RELEASED = "released"  # delivered again without having been seen; the attempt does not count
    EXPIRED = "expired"  # its time to live was exceeded
    SKIPPED = "skipped"  # the record no longer exists, or cannot be read


class Target(NamedTuple):
    """Where the first message of a range was moved to; the others of the range follow it."""

    partition: TopicPartition
    offset: int  # -1 if it is not known


class ObservedOperation(Protocol):
    """An operation of a broker, as observers see it."""

    @property
    def name(self) -> str:
        """Its area and its method, such as `topics.create`."""

    @property
    def action(self) -> Action: ...

    @property
    def is_change(self) -> bool:
        """Whether it administers something, rather than reads, or moves messages."""

    def accesses(self, arguments: Mapping[str, Any]) -> Iterable[Access]:
        """Return the resources that a call with these arguments accesses."""


class Observer:
    """Ignores everything; an observer overrides the events it needs."""

    # Whether it is called for operations that change nothing but messages, and for queries.
    observes_traffic: bool = True

    # Partitions

    def stored(
        self,
        partition: TopicPartition,
        offsets: Range,
        *,
        size: int,
        session: Session | None,
        batches: int = 1,
    ) -> None:
        """The leader has written records of a producer. The session is not always known.

        A batch with records of several senders is reported in parts; its first part counts it.
        """

    def replicated(self, partition: TopicPartition, offsets: Range) -> None:
        """Records are committed: all in-sync replicas have them."""

    def fetched(self, topic: str, count: int, *, size: int, session: Session) -> None:
        """This node has returned so many records of a topic to a client that reads by offsets."""

    def deduplicated(self, partition: TopicPartition, offsets: Range) -> None:
        """A producer has sent stored messages again, and they were not stored again."""

    def retired(self, partition: TopicPartition, offsets: Range, *, reason: str) -> None:
        """Messages were removed by retention, by a deletion of records, or with their topic."""

    # Stream groups

    def consumed(
        self, group: str, partition: TopicPartition, offsets: Range, *, consumer: str
    ) -> None:
        """A group has committed an offset; the range begins at the one before, if it is lower."""

    # Queue groups

    def delivered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        consumer: str,
        attempt: int,
    ) -> None:
        """Messages were delivered to a consumer, for the first time or again."""

    def settled(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        outcome: Outcome,
        due_ms: int = 0,
    ) -> None:
        """A delivery has ended, or messages have expired or cannot be delivered.

        Those that are delivered again are due at `due_ms`, in wall time.
        """

    def dead_lettered(
        self,
        group: str,
        partition: TopicPartition,
        ranges: Sequence[Range],
        *,
        reason: str,
        target: Target,
    ) -> None:
        """Messages are in a dead-letter topic, one range after the other from `target` on."""

    def redriven(self, source: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        """Dead letters were moved back, one range after the other from `target` on."""

    # Schedules

    def scheduled(
        self, log: TopicPartition, offsets: Range, *, due_ms: int, target: Target
    ) -> None:
        """Messages are stored in the schedule log until they are due.

        The partition of the target is -1 if it is chosen later.
        """

    def released(self, log: TopicPartition, ranges: Sequence[Range], *, target: Target) -> None:
        """Scheduled messages are in their topic, one range after the other from `target` on."""

    def cancelled(self, log: TopicPartition, ranges: Sequence[Range]) -> None:
        """Scheduled messages were cancelled."""

    # Progress

    def reported(self, log: TopicPartition, offset: int) -> None:
        """The events of groups or schedules since the last call follow from the records of an
        internal partition that end at an offset.
        """

    # Calls

    def called(
        self,
        session: Session,
        operation: ObservedOperation,
        arguments: Mapping[str, Any],
        error: Exception | None,
        duration_ms: int,
    ) -> None:
        """An operation has completed. A denial was reported before, by `denied`."""

    def queried(
        self, session: Session, operation: ObservedOperation, arguments: Mapping[str, Any]
    ) -> None:
        """A query was allowed; it is answered at once, from local state."""

    def opened(self, session: Session, action: Action, resource: Resource) -> None:
        """A session has begun to write to a partition of a topic, or to read from it."""

    def created(self, session: Session, resource: Resource, error: Exception | None) -> None:
        """A call has created something that it needed, such as a topic, or failed to."""

    def denied(
        self, session: Session, action: Action, resource: Resource, *, operation: str
    ) -> None:
        """A session was denied an action. The operation may be that of the area only."""

    def authenticated(
        self, session: Session, user: str, *, mechanism: str, error: Exception | None
    ) -> None:
        """A client has sent credentials of a user, and was accepted or not.

        The user is what the client says; it may be anything, or empty. The session is the one
        before.
        """

    def throttled(self, session: Session, limit: str, wait_ms: int) -> None:
        """A client has used up a quota, and has to wait, or is refused if `wait_ms` is 0.

        The session of a rate is that of all connections which share it: it has no address, and the
        client's id only if quotas name ids.
        """

    # The node

    def started(self, node: int) -> None:
        """The node has opened its data, and begins to serve."""

    def stopping(self, node: int) -> None:
        """The node is being stopped; it accepts no more calls."""


MESSAGE_EVENTS = (
    "stored",
    "replicated",
    "fetched",
    "deduplicated",
    "retired",
    "consumed",
    "delivered",
    "settled",
    "dead_lettered",
    "redriven",
    "scheduled",
    "released",
    "cancelled",
    "reported",
)
CALL_EVENTS = ("called", "queried", "opened", "created", "denied", "authenticated")
QUOTA_EVENTS = ("throttled",)
NODE_EVENTS = ("started", "stopping")


class Observers(Observer):
    """Passes every event to those observers that override it."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observes_traffic = any(one.observes_traffic for one in observers)
        for event in (*MESSAGE_EVENTS, *CALL_EVENTS, *QUOTA_EVENTS, *NODE_EVENTS):
            interested = [one for one in observers if overrides(one, (event,))]
            if interested:
                pass_on = _each_stored if event == "stored" else _each
                setattr(self, event, pass_on([getattr(one, event) for one in interested]))


def _each_stored(events: Sequence[Callable[..., None]]) -> Callable[..., None]:
    """Do as `_each` for the event of every write of a producer.

    Passing on arguments of any names would cost more than what most observers do with them.
    """
    if len(events) != 2:  # metrics and journeys
        return _each(events)
    first, second = events

    def stored_by_both(
        partition: TopicPartition,
        offsets: Range,
        *,
        size: int,
        session: Session | None,
        batches: int = 1,
    ) -> None:
        first(partition, offsets, size=size, session=session, batches=batches)
        second(partition, offsets, size=size, session=session, batches=batches)

    return stored_by_both


def _each(events: Sequence[Callable[..., None]]) -> Callable[..., None]:
    if len(events) == 1:
        return events[0]
    if len(events) == 2:
        first, second = events

        def report_both(*args: Any, **named: Any) -> None:
            first(*args, **named)
            second(*args, **named)

        return report_both

    def report(*args: Any, **named: Any) -> None:
        for event in events:
            event(*args, **named)

    return report


def together(observers: Iterable[Observer | None]) -> Observer | None:
    """Return one observer that stands for several; None if there is none."""
    present = [one for one in observers if one is not None]
    return Observers(present) if len(present) > 1 else next(iter(present), None)


def overrides(observer: Observer, events: Iterable[str]) -> bool:
    """Whether an observer does anything at one of the events."""
    return any(
        event in vars(observer) or getattr(type(observer), event) is not getattr(Observer, event)
        for event in events
    )


def interested(observer: Observer | None, events: Iterable[str]) -> Observer | None:
    """Return the observer if it does anything at one of the events."""
    return observer if observer is not None and overrides(observer, events) else None
