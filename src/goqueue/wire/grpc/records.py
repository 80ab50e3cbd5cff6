"""Converts messages to records and back, a batch at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from goqueue.broker.gate.areas.queues import LANE_NAMES, Received, ReceivedRun
from goqueue.broker.gate.areas.records import Published, PublishResult, Scheduled
from goqueue.model import attributes
from goqueue.model.batch import NO_TIMESTAMP, Header, Record
from goqueue.model.columns import at_places
from goqueue.model.errors import GoQueueError
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.grpc.messages import consume_service_pb2 as consuming
from goqueue.wire.grpc.messages import messages_pb2 as shared
from goqueue.wire.grpc.messages import publish_service_pb2 as publishing
from goqueue.wire.grpc.statuses import error_of

MESSAGES_MAX = 1000  # of one request
HEADERS_MAX = 50_000  # of one request; more would delay other requests
NOWHERE = -1
TRACE_PARENT = "traceparent"
# As the standard requires, an invalid one is ignored; versions after 00 may have further fields.
_TRACE_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?")
_PRIORITIES: list[Any] = [shared.Priority.Value(f"PRIORITY_{name.upper()}") for name in LANE_NAMES]
_LANES: dict[int, bytes] = {value: b"%d" % lane for lane, value in enumerate(_PRIORITIES)}


class Routed(NamedTuple):
    """Records for one partition, or for those that their keys choose, by place in the request."""

    partition: int | None
    indexes: Sequence[int]
    records: list[Record]


# Published


def check_count(count: int) -> None:
    if count > MESSAGES_MAX:
        raise InvalidField(
            f"A request may have {MESSAGES_MAX} messages; send fewer at once.", field="messages"
        )


def check_messages(messages: Sequence[shared.OutgoingMessage]) -> None:
    """Raise unless the messages of a request are few enough to be handled in one go."""
    if not messages:
        raise InvalidField("A request has at least one message.", field="messages")
    check_count(len(messages))
    if sum(len(one.headers) for one in messages) > HEADERS_MAX:
        raise InvalidField(
            f"The messages of a request may have {HEADERS_MAX} headers together.", field="messages"
        )


def routed(
    messages: Sequence[shared.OutgoingMessage], *, now_ms: int, trace_parent: bytes = b""
) -> tuple[list[Routed], dict[int, GoQueueError]]:
    """Return the records of a request by partition, and the errors of invalid messages."""
    trace = valid_trace_parent(trace_parent)
    plain: list[Record] = []
    indexes: list[int] = []
    named: dict[int, Routed] = {}
    errors: dict[int, GoQueueError] = {}
    for index, one in enumerate(messages):
        try:
            record = to_record(one, now_ms=now_ms, trace=trace)
        except GoQueueError as error:
            errors[index] = error
            continue
        if one.HasField("partition"):
            group = named.get(one.partition)
            if group is None:
                group = named[one.partition] = Routed(one.partition, [], [])
            group.indexes.append(index)  # type: ignore[attr-defined]
            group.records.append(record)
        else:
            plain.append(record)
            indexes.append(index)
    groups = list(named.values())
    if plain:
        groups.insert(0, Routed(None, indexes, plain))
    return groups, errors


def valid_trace_parent(trace_parent: bytes) -> bytes:
    return trace_parent if _TRACE_PARENT.fullmatch(trace_parent) else b""


def to_record(one: shared.OutgoingMessage, *, now_ms: int, trace: bytes = b"") -> Record:
    """Return the record of a message; delay, lane and time to live become headers."""
    has = one.HasField
    fields = one.ListFields()
    names = len(fields) - has("key") - has("value")
    headers: tuple[Header, ...] = ((TRACE_PARENT, trace),) if trace else ()
    timestamp_ms = now_ms
    if names:
        headers = _headers(one, trace)
        if has("timestamp_ms"):
            timestamp_ms = _positive(one.timestamp_ms, "timestamp_ms")
    return Record(
        one.key if has("key") else None, one.value if has("value") else None, headers, timestamp_ms
    )


def _headers(one: shared.OutgoingMessage, trace: bytes) -> tuple[Header, ...]:
    has = one.HasField
    given = [
        (header.name, header.value if header.HasField("value") else None) for header in one.headers
    ]
    if not all(name for name, _ in given):
        raise InvalidField("A header has no name.", field="headers")
    asked: list[Header] = []
    if trace and not any(name == TRACE_PARENT for name, _ in given):
        asked.append((TRACE_PARENT, trace))
    if one.priority:
        asked.append((attributes.PRIORITY_HEADER, _lane(one.priority)))
    if has("delay_ms"):
        asked.append((attributes.DELAY_HEADER, b"%d" % _positive(one.delay_ms, "delay_ms")))
    if has("deliver_at_ms"):
        due_ms = _positive(one.deliver_at_ms, "deliver_at_ms")
        asked.append((attributes.DELIVER_AT_HEADER, b"%d" % due_ms))
    if has("ttl_ms"):
        asked.append((attributes.TTL_HEADER, b"%d" % _positive(one.ttl_ms, "ttl_ms")))
    twice = {name for name, _ in asked} & {name for name, _ in given}
    if twice:
        raise InvalidField(
            f"The header {min(twice)!r} and the field mean the same; send only one of them.",
            field="headers",
        )
    return (*given, *asked)


def _lane(priority: int) -> bytes:
    known = _LANES.get(priority)
    if known is None:
        raise InvalidField(f"There is no priority {priority}.", field="priority")
    return known


def priority_of(lane: int) -> Any:
    return _PRIORITIES[lane]


def _positive(value: int, field: str) -> int:
    if value < 0:
        raise InvalidField(f"{field} is negative: {value}.", field=field)
    return value


def report_of(results: Sequence[PublishResult]) -> publishing.PublishReport:
    """Return what became of the messages of a request, as columns."""
    if set(map(type, results)) == {Published}:
        partitions, offsets, _ = zip(*results, strict=True)
        return publishing.PublishReport(partitions=partitions, offsets=offsets)
    report = publishing.PublishReport()
    for index, result in enumerate(results):
        partition = offset = NOWHERE
        if isinstance(result, GoQueueError):
            report.errors.append(publishing.PublishError(index=index, error=error_of(result)))
        elif isinstance(result, Scheduled):
            report.scheduled.append(
                publishing.ScheduledMessage(
                    index=index, schedule_id=result.schedule_id, deliver_at_ms=result.due_ms
                )
            )
        else:
            partition, offset, _ = result
        report.partitions.append(partition)
        report.offsets.append(offset)
    return report


# Read


def to_headers(headers: Iterable[Header]) -> list[shared.Header]:
    return [shared.Header(name=name, value=value) for name, value in headers]


def to_stored(topic: str, partition: int, record: Record) -> shared.StoredMessage:
    key, value, headers, timestamp_ms, offset = record
    return shared.StoredMessage(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms if timestamp_ms != NO_TIMESTAMP else 0,
        key=key,
        value=value,
        headers=to_headers(headers) if headers else None,
    )


def received_messages(received: Received) -> list[consuming.ReceivedMessage]:
    """Return the messages of a receive call, each with its receipt."""
    return [one for run in received.runs for one in _messages_of(received.topic, run)]


def _messages_of(topic: str, run: ReceivedRun) -> list[consuming.ReceivedMessage]:
    columns, places, lease, first = run
    of_lease = slice(first, first + len(places))
    head, partition, until_ms = lease.head, lease.partition, lease.until_ms
    make = consuming.ReceivedMessage
    messages = [
        make(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=key,
            value=value,
            receipt=head + tail,
            priority=_PRIORITIES[lane],
            attempt=attempt,
            leased_until_ms=until_ms,
        )
        for offset, timestamp_ms, key, value, tail, lane, attempt in zip(
            lease.offsets[of_lease],
            at_places(columns.timestamps, places),
            columns.keys(places),
            columns.values(places),
            lease.tails[of_lease],
            lease.lanes[of_lease],
            lease.attempts[of_lease],
            strict=True,
        )
    ]
    if columns.has_headers:
        for message, place in zip(messages, places, strict=True):
            message.headers.extend(to_headers(columns.headers(place)))
    return messages


def split_messages(
    messages: Sequence[consuming.ReceivedMessage], bytes_max: int
) -> Iterator[Sequence[consuming.ReceivedMessage]]:
    """Return messages in runs of limited size; a larger message is a run of its own."""
    first = size = 0
    for index, one in enumerate(messages):
        added = one.ByteSize()
        if index > first and size + added > bytes_max:
            yield messages[first:index]
            first, size = index, 0
        size += added
    if first < len(messages):
        yield messages[first:]
