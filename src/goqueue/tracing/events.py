"""Events of journeys: what happened to a range of messages of one partition."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """What happened. The numbers are stored; they are never reused."""

    RECEIVED = 1  # the leader has appended the records of a producer
    STORED = 2  # they are committed: as durable as the topic promises
    SCHEDULED = 3  # stored in the schedule log until they are due
    RELEASED = 4  # a scheduled message is now in its topic, at `link`
    CANCELLED = 5  # a scheduled message was cancelled
    DELIVERED = 6  # to a consumer of a queue group
    ACKED = 7
    NACKED = 8  # the consumer asked for another delivery, at `due_ms`
    LEASE_EXPIRED = 9  # the consumer did not settle them in time; delivered again at `due_ms`
    RETURNED = 10  # delivered again without having been seen; the attempt does not count
    REJECTED = 11  # the consumer refused them for good
    EXPIRED = 12  # the time to live was exceeded
    SKIPPED = 13  # the records no longer exist, or cannot be read
    DEAD_LETTERED = 14  # now in a dead-letter topic, at `link`
    REDRIVEN = 15  # a dead letter is back in its topic, at `link`
    DEDUPLICATED = 16  # a duplicate of these messages was refused
    CONSUMED = 17  # a stream group has committed an offset after them
    RETIRED = 18  # removed by retention, by a deletion of records, or with the topic
    RECOVERED = 19  # what happened to them was lost in a crash, except for what this event has
    ARRIVED = 20  # they come from another log, at `link`: released, dead-lettered or redriven


class Link(NamedTuple):
    """Where the first message of a range is in another partition; the others follow it there."""

    topic: str
    partition: int
    offset: int  # -1 if it is not known


class Details(NamedTuple):
    """What many events have in common. Texts are empty, and numbers 0, if they do not apply."""

    kind: Kind
    node: int = -1  # where it happened
    group: str = ""
    consumer: str = ""  # who received a delivery, or committed an offset
    principal: str = ""  # who produced
    client_id: str = ""
    listener: str = ""
    reason: str = ""
    attempt: int = 0  # of a delivery, from 1
    replicas: int = 0  # that have them; of `STORED`
    is_recovered: bool = False  # derived from a log after a crash; some details are lost


class Event(NamedTuple):
    """Something that happened to the messages from offset `first` up to, not including, `end`.

    Events with equal details are merged if they follow each other closely, so that the last message
    may have its event a little later than the first one.
    """

    details: Details
    first: int
    end: int
    time_ms: int  # wall time, of the first message
    last_ms: int  # of the last message
    size: int = 0  # bytes stored; of `RECEIVED`
    due_ms: int = 0  # when they are due, or delivered again
    link: Link | None = None

    @property
    def kind(self) -> Kind:
        return self.details.kind

    def time_of(self, offset: int) -> int:
        """Return when it happened to one of the messages, interpolated."""
        if self.end - self.first <= 1:
            return self.time_ms
        step = (self.last_ms - self.time_ms) * (offset - self.first)
        return self.time_ms + step // (self.end - 1 - self.first)

    def link_of(self, offset: int) -> Link | None:
        """Return where one of the messages is, or was, in the other log."""
        if self.link is None or self.link.offset < 0:
            return self.link
        return self.link._replace(offset=self.link.offset + offset - self.first)


class Source(NamedTuple):
    """A partition from whose log events are derived."""

    topic_id: bytes
    partition: int


class Span(NamedTuple):
    """A part of the log of a source: a record of the journal has all events derived from it."""

    source: Source
    epoch: int  # the leader epoch of the source in which it was read
    first: int
    end: int
    is_reset: bool = False  # the log of the source was truncated to `first`


class Cursor(NamedTuple):
    """All events of a source before an offset of its log are in the journal."""

    source: Source
    epoch: int
    position: int


class Place(NamedTuple):
    """The partition that events are about."""

    topic: str  # as named inside the broker, with the prefix of its tenant
    topic_id: bytes
    partition: int
