"""Validates delayed records and converts them to scheduled messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goqueue.broker.topics.topics import Topic
from goqueue.delivery.schedules import PARTITION_OPEN, Origin, ScheduledMessage
from goqueue.model.attributes import (
    DELAY_HEADER,
    DELIVER_AT_HEADER,
    SCHEDULE_ID_HEADER,
    check_due,
)
from goqueue.model.batch import HEADER_BYTES, Header, Record
from goqueue.model.errors import InvalidRecord, InvalidRequest, RecordTooLarge

_RECORD_OVERHEAD_BYTES = 32
_OWN_HEADERS = frozenset({DELAY_HEADER, DELIVER_AT_HEADER, SCHEDULE_ID_HEADER})


class Delayed(NamedTuple):
    """A record with a due time; without a partition, one is chosen at release."""

    record: Record
    due_ms: int
    partition: int = PARTITION_OPEN


def to_messages(
    topic: Topic, delayed: Sequence[Delayed], *, now_ms: int, origin: Origin | None = None
) -> list[ScheduledMessage]:
    """Convert the records of one call; one invalid record refuses them all."""
    if not delayed:
        raise InvalidRequest("There is nothing to schedule; send at least one record.")
    check_due(max(one.due_ms for one in delayed), now_ms=now_ms)
    for partition in {one.partition for one in delayed}:
        if partition != PARTITION_OPEN:
            topic.partition(partition)
    size_max = topic.settings.message_bytes_max - HEADER_BYTES - _RECORD_OVERHEAD_BYTES
    needs_key = topic.settings.log.is_compacting
    topic_id, name = topic.id, topic.name
    messages: list[ScheduledMessage] = []
    for (key, value, headers, timestamp_ms, _), due_ms, partition in delayed:
        size = (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        if size > size_max:
            raise _too_large(topic, size)
        if key is None and needs_key:
            raise InvalidRecord(f"Topic {name!r} is compacted; give each record a key.")
        if headers:
            # Most have exactly one header, which requests the delay and is not delivered.
            is_only = len(headers) == 1 and headers[0][0] in _OWN_HEADERS
            headers = () if is_only else _delivered(headers)
        messages.append(
            ScheduledMessage(
                due_ms, topic_id, name, partition, key, value, headers, timestamp_ms, origin
            )
        )
    return messages


def _delivered(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    return tuple([header for header in headers if header[0] not in _OWN_HEADERS])


def _too_large(topic: Topic, size: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"A record of {size + _RECORD_OVERHEAD_BYTES} bytes is over the limit of topic "
        f"{topic.name!r}, {topic.settings.message_bytes_max} bytes for a batch; send a smaller one."
    )
