"""Spans of journeys: the stages of a message, from its events, for collectors of OpenTelemetry.

A span is one stage of one message with a beginning and an end. Its id follows from what it is about
and from nothing else, so a journal that is exported twice gives the same spans twice, and a
collector that knows them keeps one. The producer's `traceparent` is read and never changed: spans
have a link to it, or are its children.

Names and attributes are those of the messaging conventions of OpenTelemetry, where these have any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum, StrEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from goqueue.model.tenants import plain_name, tenant_of
from goqueue.tracing.events import Event, Kind, Place
from goqueue.tracing.events import Link as Where
from goqueue.tracing.gathering import MERGED_MS_MAX
from goqueue.tracing.timeline import FORWARD

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
TRACE_HEADER = "traceparent"

# What every span may have: names of the conventions, and our own where there are none.
SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
CLIENT = "messaging.client.id"
MESSAGE = "messaging.message.id"
OFFSET = "messaging.kafka.offset"
ERROR = "error.type"
TENANT = "goqueue.tenant"
NODE = "goqueue.node.id"  # where the stage ended
ATTEMPT = "goqueue.delivery.attempt"
CONSUMER = "goqueue.consumer"
REPLICAS = "goqueue.replicas"
REASON = "goqueue.reason"
RECOVERED = "goqueue.recovered"
DUE = "goqueue.due_ms"

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_VERSION_INVALID = b"ff"
_SAMPLED = 1
_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8


class SpanKind(IntEnum):
    """The numbers of OTLP."""

    INTERNAL = 1
    SERVER = 2
    CONSUMER = 5


class Stage(StrEnum):
    """A part of the way of a message, as the conventions name the operation, if they do."""

    PERSIST = "persist"  # received until stored
    SCHEDULE = "schedule"  # scheduled until released or cancelled
    WAIT = "wait"  # stored, or due again, until delivered
    HOLD = "hold"  # delivered until settled
    DEAD_LETTER = "dead_letter"  # given up until it is in the dead-letter topic
    REDRIVE = "redrive"  # stored as a dead letter until it is back in its topic


class _Shape(NamedTuple):
    kind: SpanKind
    operation: str  # the type; empty if the conventions have none


_SHAPES = {
    Stage.PERSIST: _Shape(SpanKind.SERVER, "send"),
    Stage.SCHEDULE: _Shape(SpanKind.INTERNAL, ""),
    Stage.WAIT: _Shape(SpanKind.INTERNAL, ""),
    Stage.HOLD: _Shape(SpanKind.CONSUMER, "process"),
    Stage.DEAD_LETTER: _Shape(SpanKind.INTERNAL, ""),
    Stage.REDRIVE: _Shape(SpanKind.INTERNAL, ""),
}
_SETTLED = frozenset(
    {
        *(Kind.ACKED, Kind.NACKED, Kind.LEASE_EXPIRED, Kind.RETURNED),
        *(Kind.REJECTED, Kind.EXPIRED, Kind.SKIPPED, Kind.DEAD_LETTERED),
    }
)
# What only happens to a delivery.
_OF_DELIVERIES = _SETTLED - {Kind.EXPIRED, Kind.SKIPPED, Kind.DEAD_LETTERED}
_AGAIN = frozenset({Kind.NACKED, Kind.LEASE_EXPIRED, Kind.RETURNED})
_FAILED = frozenset({Kind.LEASE_EXPIRED, Kind.REJECTED, Kind.EXPIRED, Kind.DEAD_LETTERED})
# With one of them a message is exported, whether it was sampled or not.
# That a message has arrived is left out: it is received as well.
RELEVANT = frozenset(
    {
        *(*_SETTLED, *FORWARD),
        *(Kind.RECEIVED, Kind.STORED, Kind.DELIVERED, Kind.SCHEDULED, Kind.CANCELLED),
    }
)
ERRORS = frozenset({Kind.REJECTED, Kind.EXPIRED, Kind.DEAD_LETTERED})
# Of which a span has an event.
_NOTED = frozenset({Kind.NACKED, Kind.LEASE_EXPIRED, Kind.DEAD_LETTERED, Kind.REDRIVEN})


class Context(NamedTuple):
    """The span of a producer, as its `traceparent` names it."""

    trace_id: bytes
    span_id: bytes
    is_sampled: bool


class SpanEvent(NamedTuple):
    name: str
    time_ms: int
    attributes: tuple[tuple[str, str | int], ...] = ()


class SpanLink(NamedTuple):
    trace_id: bytes
    span_id: bytes


class Span(NamedTuple):
    """A stage of a message."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes  # empty: none
    name: str
    kind: SpanKind
    start_ms: int
    end_ms: int
    attributes: tuple[tuple[str, str | int], ...]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str = ""  # why the stage failed


class Traced(NamedTuple):
    """A message whose spans are wanted."""

    place: Place
    offset: int
    producer: Context | None = None
    is_child: bool = False  # spans are children of the producer's, otherwise linked to it


# The id of a topic, by its name; None if it does not exist.
FindTopic = Callable[[str], bytes | None]


def read_context(header: bytes) -> Context | None:
    """Return what a `traceparent` says; None if it is not valid."""
    found = _TRACEPARENT.fullmatch(header.strip())
    if found is None or header.strip()[:2] == _VERSION_INVALID:
        return None
    trace_id, span_id, flags = (bytes.fromhex(one.decode()) for one in found.groups())
    if not any(trace_id) or not any(span_id):
        return None
    return Context(trace_id, span_id, bool(flags[0] & _SAMPLED))


def is_chosen(place: Place, offset: int, every: int) -> bool:
    """Whether a message is one in `every`; 0 chooses none."""
    return every > 0 and (offset + _phase(place)) % every == 0


def chosen(place: Place, first: int, end: int, every: int) -> range:
    """Return the messages of a range that are chosen: one in `every`, the same each time."""
    if every <= 0:
        return range(0)
    return range(first + -(first + _phase(place)) % every, end, every)


def _phase(place: Place) -> int:
    """Partitions begin to count at different offsets."""
    return int.from_bytes(_digest(8, place.topic_id, b"%d" % place.partition), "big")


# Ids


def trace_id_of(topic_id: bytes, partition: int, offset: int) -> bytes:
    """Return the id of the trace of a message whose producer has none."""
    return _digest(_TRACE_ID_BYTES, topic_id, b"%d/%d" % (partition, offset))


def span_id_of(
    topic_id: bytes, partition: int, offset: int, stage: Stage, group: str = "", attempt: int = 0
) -> bytes:
    """Return the id of a span, which follows from what it is about."""
    about = b"%d/%d/%d/" % (partition, offset, attempt)
    return _digest(_SPAN_ID_BYTES, topic_id, about + f"{stage}/{group}".encode())


def _digest(size: int, topic_id: bytes, about: bytes) -> bytes:
    return blake2b(topic_id + about, digest_size=size).digest()


# Stages


class _Found(NamedTuple):
    """A stage that is complete, and the number of the event that completed it."""

    stage: Stage
    start_ms: int
    number: int
    event: Event
    attempt: int = 0
    consumer: str = ""


def spans_of(
    traced: Traced, events: Sequence[Event], find_topic: FindTopic, *, known: int = 0
) -> list[Span]:
    """Return the spans of the stages that the events after the first `known` complete.

    The events are all of the message, in the order of the journal.
    """
    found = _find_stages(events, traced.offset)
    return [_span(traced, one, events, find_topic) for one in found if one.number >= known]


def _find_stages(events: Sequence[Event], offset: int) -> list[_Found]:
    """Return the stages in the order in which they were complete."""
    stages = _Stages(offset)
    for number, event in enumerate(events):
        stages.apply(number, event)
    return stages.found


class _Stages:
    """Finds the stages of one message.

    Events of different sources, and those that were merged with earlier ones, may be in the journal
    before what they follow from. They wait for it.
    """

    def __init__(self, offset: int) -> None:
        self.found: list[_Found] = []
        self._offset = offset
        self._received_ms: int | None = None
        self._stored_ms: int | None = None
        self._scheduled_ms: int | None = None
        # By group
        self._ready_ms: dict[str, int] = {}  # since when it can be delivered again
        self._given_up_ms: dict[str, int] = {}
        self._out: dict[str, Event] = {}  # its delivery that is not settled
        self._early: dict[str, Event] = {}  # settled before the journal has the delivery
        self._unstored: list[Event] = []  # delivered before the journal has the commit

    def apply(self, number: int, event: Event) -> None:
        kind, now_ms = event.kind, event.time_of(self._offset)
        if kind is Kind.RECEIVED:
            self._received_ms = now_ms
        elif kind is Kind.STORED:
            self._store(number, event, now_ms)
        elif kind is Kind.SCHEDULED:
            self._scheduled_ms = now_ms
        elif kind in (Kind.RELEASED, Kind.CANCELLED):
            self._add(Stage.SCHEDULE, self._scheduled_ms, number, event)
        elif kind is Kind.REDRIVEN:
            self._add(Stage.REDRIVE, self._stored_ms, number, event)
        elif kind is Kind.DELIVERED:
            self._deliver(number, event)
        elif kind in _SETTLED:
            self._settle(number, event, now_ms)

    def _add(
        self, stage: Stage, start_ms: int | None, number: int, event: Event, **more: Any
    ) -> None:
        if start_ms is not None:
            self.found.append(_Found(stage, start_ms, number, event, **more))

    def _store(self, number: int, event: Event, now_ms: int) -> None:
        if self._stored_ms is not None:
            return
        self._stored_ms = now_ms
        self._add(Stage.PERSIST, self._received_ms, number, event)
        for delivered in self._unstored:
            self._wait(number, delivered, now_ms)

    def _deliver(self, number: int, event: Event) -> None:
        group = event.details.group
        since_ms = self._ready_ms.pop(group, self._stored_ms)
        if since_ms is None:
            self._unstored.append(event)
        self._wait(number, event, since_ms)
        self._out[group] = event
        early = self._early.pop(group, None)
        if early is not None:
            settled_ms = early.time_of(self._offset)
            if settled_ms >= event.time_of(self._offset) - MERGED_MS_MAX:
                self._settle(number, early, settled_ms)

    def _wait(self, number: int, delivered: Event, since_ms: int | None) -> None:
        details = delivered.details
        self._add(
            Stage.WAIT,
            since_ms,
            number,
            delivered,
            attempt=details.attempt,
            consumer=details.consumer,
        )

    def _settle(self, number: int, event: Event, now_ms: int) -> None:
        kind, group = event.kind, event.details.group
        delivered = self._out.pop(group, None)
        if delivered is not None:
            start_ms, details = delivered.time_of(self._offset), delivered.details
            who = {"attempt": details.attempt, "consumer": details.consumer}
            self._add(Stage.HOLD, start_ms, number, event, **who)
        elif kind is Kind.EXPIRED:
            self._add(Stage.WAIT, self._ready_ms.get(group, self._stored_ms), number, event)
        elif kind in _OF_DELIVERIES:
            self._early[group] = event
            return
        if kind is Kind.DEAD_LETTERED:
            self._add(Stage.DEAD_LETTER, self._given_up_ms.get(group, now_ms), number, event)
        else:
            self._given_up_ms[group] = now_ms  # if it is not delivered again
        if kind in _AGAIN:
            self._ready_ms[group] = max(now_ms, event.due_ms)


# Spans


def _span(traced: Traced, found: _Found, events: Sequence[Event], find_topic: FindTopic) -> Span:
    place, offset, producer, is_child = traced
    event, group = found.event, found.event.details.group
    kind, operation = _SHAPES[found.stage]
    end_ms = event.time_of(offset)
    ids = (place.topic_id, place.partition, offset)
    first_id = span_id_of(*ids, _first_stage(events))
    span_id = span_id_of(*ids, found.stage, group, found.attempt)
    links = _links(found, offset, find_topic)
    trace_id, parent_id = trace_id_of(*ids), b"" if span_id == first_id else first_id
    if producer is not None and is_child:
        trace_id, parent_id = producer.trace_id, producer.span_id
    elif producer is not None:
        links = (SpanLink(producer.trace_id, producer.span_id), *links)
    is_failed = event.kind in _FAILED and found.stage is not Stage.REDRIVE
    return Span(
        trace_id,
        span_id,
        parent_id,
        f"{found.stage} {_destination(place, events)}",
        kind,
        found.start_ms,
        max(found.start_ms, end_ms),
        tuple(_attributes(traced, found, events, operation)),
        _span_events(found, events, offset),
        links,
        event.kind.name.lower() if is_failed else "",
    )


def _first_stage(events: Sequence[Event]) -> Stage:
    is_scheduled = any(one.kind is Kind.SCHEDULED for one in events)
    return Stage.SCHEDULE if is_scheduled else Stage.PERSIST


def _destination(place: Place, events: Sequence[Event]) -> str:
    """Return the topic; of a scheduled message the one that it is for."""
    for event in events:
        if event.kind is Kind.SCHEDULED and event.link is not None:
            return plain_name(event.link.topic)
    return plain_name(place.topic)


def _attributes(
    traced: Traced, found: _Found, events: Sequence[Event], operation: str
) -> list[tuple[str, str | int]]:
    place, offset = traced.place, traced.offset
    event, details = found.event, found.event.details
    received = next((one for one in events if one.kind is Kind.RECEIVED), None)
    client = received.details.client_id if received is not None else ""
    is_failed = event.kind in _FAILED and found.stage is not Stage.REDRIVE
    pairs: list[tuple[str, str | int]] = [
        (SYSTEM, "goqueue"),
        (OPERATION_NAME, str(found.stage)),
        (OPERATION_TYPE, operation),
        (DESTINATION, _destination(place, events)),
        (PARTITION, str(place.partition)),
        (MESSAGE, f"{plain_name(place.topic)}:{place.partition}:{offset}"),
        (OFFSET, offset),
        (GROUP, plain_name(details.group)),
        (CLIENT, client if found.stage is Stage.PERSIST else ""),
        (CONSUMER, found.consumer),
        (ATTEMPT, found.attempt),
        (ERROR, event.kind.name.lower() if is_failed else ""),
        (REASON, details.reason),
        (TENANT, tenant_of(place.topic)),
        (NODE, str(details.node)),
        (RECOVERED, "true" if details.is_recovered else ""),
    ]
    # The offset of the first message is 0, and says something.
    return [one for one in pairs if one[0] == OFFSET or one[1]]


def _span_events(found: _Found, events: Sequence[Event], offset: int) -> tuple[SpanEvent, ...]:
    event = found.event
    time_ms = event.time_of(offset)
    if found.stage is Stage.PERSIST and event.details.replicas > 1:
        return (SpanEvent("replicated", time_ms, ((REPLICAS, event.details.replicas),)),)
    if event.kind not in _NOTED:
        return ()
    link = event.link_of(offset)
    said: list[tuple[str, str | int]] = [(REASON, event.details.reason)]
    if link is not None:
        said.append(("goqueue.target", _shown(link)))
    if event.due_ms:
        said.append((DUE, event.due_ms))
    return (SpanEvent(event.kind.name.lower(), time_ms, tuple(one for one in said if one[1])),)


def _shown(link: Where) -> str:
    return ":".join([plain_name(link.topic), *(f"{n}" for n in link[1:] if n >= 0)])


def _links(found: _Found, offset: int, find_topic: FindTopic) -> tuple[SpanLink, ...]:
    """Return the first span of the message that this one became."""
    where = found.event.link_of(offset)
    if found.event.kind not in FORWARD or where is None or where.offset < 0:
        return ()
    topic_id = find_topic(where.topic)
    if topic_id is None:
        return ()
    ids = topic_id, where.partition, where.offset
    return (SpanLink(trace_id_of(*ids), span_id_of(*ids, Stage.PERSIST)),)
