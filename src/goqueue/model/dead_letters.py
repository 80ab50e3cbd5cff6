"""How a dead letter says where it came from: headers that the broker adds to its record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from goqueue.model.batch import Header

PREFIX = "goqueue-dead-"
TOPIC_HEADER = PREFIX + "topic"
PARTITION_HEADER = PREFIX + "partition"
OFFSET_HEADER = PREFIX + "offset"
GROUP_HEADER = PREFIX + "group"
REASON_HEADER = PREFIX + "reason"
ATTEMPTS_HEADER = PREFIX + "attempts"
TIME_HEADER = PREFIX + "time-ms"
# On a message that was brought back: the dead letter it was and the job that did it, as
# topic/partition/offset/job.
REDRIVEN_HEADER = "goqueue-redriven-from"

UNKNOWN = -1


class Origin(NamedTuple):
    """Where a message was when it died, for whom, why and when."""

    topic: str
    partition: int
    offset: int
    group: str
    reason: str
    attempts: int
    time_ms: int


def write_origin(origin: Origin) -> tuple[Header, ...]:
    return (
        (TOPIC_HEADER, origin.topic.encode()),
        (PARTITION_HEADER, b"%d" % origin.partition),
        (OFFSET_HEADER, b"%d" % origin.offset),
        (GROUP_HEADER, origin.group.encode()),
        (REASON_HEADER, origin.reason.encode()),
        (ATTEMPTS_HEADER, b"%d" % origin.attempts),
        (TIME_HEADER, b"%d" % origin.time_ms),
    )


def read_origin(headers: Iterable[Header]) -> Origin | None:
    """What the headers say; None when the record does not come from the broker's hand.

    A message can die again after it was brought back, so the last word counts.
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
    """The headers that the message had when it was alive."""
    return tuple(
        (name, content)
        for name, content in headers
        if not name.startswith(PREFIX) and name != REDRIVEN_HEADER
    )


def _text(content: bytes | None) -> str:
    return "" if content is None else content.decode("utf-8", "replace")


def _number(content: bytes | None) -> int:
    try:
        return UNKNOWN if content is None else int(content)
    except ValueError:
        return UNKNOWN  # A header of this name that somebody else has written.
