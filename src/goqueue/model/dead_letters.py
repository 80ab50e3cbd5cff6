"""The headers that the broker adds to a dead letter, to record where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from goqueue.model.batch import Header
from goqueue.model.tenants import Text, plain_name

PREFIX = "goqueue-dead-"
TOPIC_HEADER = PREFIX + "topic"
PARTITION_HEADER = PREFIX + "partition"
OFFSET_HEADER = PREFIX + "offset"
GROUP_HEADER = PREFIX + "group"
REASON_HEADER = PREFIX + "reason"
ATTEMPTS_HEADER = PREFIX + "attempts"
TIME_HEADER = PREFIX + "time-ms"
# What clients of share groups expect (KIP-1191); written beside the headers above.
ERRORS_PREFIX = "__dlq.errors."
# On a redriven message: the dead letter it was and the redrive job, as
# topic/partition/offset/job.
REDRIVEN_HEADER = "goqueue-redriven-from"

UNKNOWN = -1


class Origin(NamedTuple):
    """Where a message was dead-lettered from, for which group, why and when.

    Headers are for clients, so they have the names that the clients of the topic's tenant see.
    """

    topic: Text
    partition: int
    offset: int
    group: Text
    reason: Text
    attempts: int
    time_ms: int


def write_origin(origin: Origin) -> tuple[Header, ...]:
    return (
        (TOPIC_HEADER, plain_name(origin.topic).encode()),
        (PARTITION_HEADER, b"%d" % origin.partition),
        (OFFSET_HEADER, b"%d" % origin.offset),
        (GROUP_HEADER, plain_name(origin.group).encode()),
        (REASON_HEADER, origin.reason.encode()),
        (ATTEMPTS_HEADER, b"%d" % origin.attempts),
        (TIME_HEADER, b"%d" % origin.time_ms),
    )


def write_errors(origin: Origin) -> tuple[Header, ...]:
    """Return the same, in the headers that clients of share groups expect."""
    return (
        (ERRORS_PREFIX + "topic", plain_name(origin.topic).encode()),
        (ERRORS_PREFIX + "partition", b"%d" % origin.partition),
        (ERRORS_PREFIX + "offset", b"%d" % origin.offset),
        (ERRORS_PREFIX + "group", plain_name(origin.group).encode()),
        (ERRORS_PREFIX + "delivery.count", b"%d" % origin.attempts),
        (ERRORS_PREFIX + "message", origin.reason.encode()),
    )


def read_origin(headers: Iterable[Header]) -> Origin | None:
    """Parse the headers; None if the broker did not write this record as a dead letter.

    A redriven message can be dead-lettered again, so the last headers count.
    """
    found = {name: content for name, content in headers if name.startswith(PREFIX)}
    topic = found.get(TOPIC_HEADER)
    if topic is None:
        return None
    return Origin(
        topic.decode("utf-8", "replace"),
        _number(found.get(PARTITION_HEADER)),
        _number(found.get(OFFSET_HEADER)),
        _text(found.get(GROUP_HEADER)),
        _text(found.get(REASON_HEADER)),
        _number(found.get(ATTEMPTS_HEADER)),
        _number(found.get(TIME_HEADER)),
    )


def without_origin(headers: Iterable[Header]) -> tuple[Header, ...]:
    """The headers of the original message."""
    return tuple(
        (name, content)
        for name, content in headers
        if not name.startswith((PREFIX, ERRORS_PREFIX)) and name != REDRIVEN_HEADER
    )


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8", "replace")


def _number(content: bytes | None) -> int:
    try:
        return UNKNOWN if content is None else int(content)
    except ValueError:
        return UNKNOWN  # A header of this name that a client wrote.
