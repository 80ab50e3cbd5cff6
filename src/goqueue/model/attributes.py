"""Attributes that a producer may set on a message, as headers of its record.

Any client of the format can set a header and any reader can see it, so GoQueue's own attributes
are headers whose names begin with `goqueue-`. Most batches have none, and must not pay for those
that have: one search for that prefix over the bytes of a batch distinguishes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from goqueue.model.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Header, read_header
from goqueue.model.compression import Buffer, Compression, decompress
from goqueue.model.decoding import searcher
from goqueue.model.errors import InvalidAttribute

PREFIX = "goqueue-"
# Headers in which a record stores its sender's ids of the message, so that every way of reading
# returns them, and so that recent ones can be read back from the log after a restart.
MESSAGE_ID_HEADER = "sqs.id"
DEDUPLICATION_HEADER = "sqs.dedup"
# When a message was sent under that id, in milliseconds. A later stored duplicate, dead-lettered
# or redriven, was not sent again.
DEDUPLICATED_AT_HEADER = "sqs.dedup-at"
PRIORITY_HEADER = "goqueue-priority"
DELAY_HEADER = "goqueue-delay-ms"
DELIVER_AT_HEADER = "goqueue-deliver-at"
TTL_HEADER = "goqueue-ttl-ms"
# Set by the broker on a message that it has released, so that recovery recognises the release.
SCHEDULE_ID_HEADER = "goqueue-schedule-id"

PRIORITY_NAMES = ("critical", "high", "normal", "low", "background")
PRIORITY_DEFAULT = 2
DELAY_MS_MAX = 100 * 366 * 24 * 3600 * 1000  # a hundred years
TTL_MS_MAX = DELAY_MS_MAX
_CODEC_BYTE = 22  # of a batch: the lower byte of its own attributes
_TEXT_SHOWN = 60  # of a bad value, in the error about it

# Whether decompressed records have the prefix at or after a position.
contains_prefix = searcher(PREFIX.encode())
_PRIORITIES = {
    **{name.encode(): number for number, name in enumerate(PRIORITY_NAMES)},
    **{b"%d" % number: number for number in range(len(PRIORITY_NAMES))},
}
_DIGITS_MAX = 15
_RFC_3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Attributes(NamedTuple):
    """The attributes in the headers of one record."""

    priority: int = PRIORITY_DEFAULT
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    ttl_ms: int | None = None

    def due_ms(self, now_ms: int) -> int | None:
        """The due time of the message, or None if it is due now."""
        due_ms = self.deliver_at_ms
        if self.delay_ms is not None:
            due_ms = now_ms + self.delay_ms
        if due_ms is None or due_ms <= now_ms:
            return None
        check_due(due_ms, now_ms=now_ms)
        return due_ms


NO_ATTRIBUTES = Attributes()


def has_attributes(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the prefix of GoQueue's headers occurs anywhere in the records of a whole batch.

    A value may contain it by chance; then the records are decoded needlessly, without harm.
    """
    if header.codec is Compression.NONE:
        return contains_prefix(batch, HEADER_BYTES)
    payload = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size])
    return contains_prefix(payload, 0)


def may_have_attributes(batch: Buffer) -> bool:
    """The same for a producer's bytes that have not been checked yet."""
    if len(batch) < HEADER_BYTES:
        return False
    if not batch[_CODEC_BYTE] & CODEC_MASK:
        return contains_prefix(batch, HEADER_BYTES)
    return has_attributes(batch, read_header(batch))


def parse_attributes(headers: Iterable[Header]) -> Attributes:
    """Parse the attributes in a record's headers; the last of duplicate headers wins."""
    priority, delay_ms, deliver_at_ms, ttl_ms = NO_ATTRIBUTES
    for name, content in headers:
        if not name.startswith(PREFIX):
            continue
        if name == PRIORITY_HEADER:
            priority = parse_priority(content)
        elif name == DELAY_HEADER:
            delay_ms = _parse_number(name, content, DELAY_MS_MAX)
        elif name == DELIVER_AT_HEADER:
            deliver_at_ms = parse_moment(content)
        elif name == TTL_HEADER:
            ttl_ms = _parse_number(name, content, TTL_MS_MAX)
    if delay_ms is not None and deliver_at_ms is not None:
        raise InvalidAttribute(
            f"A record has both {DELAY_HEADER} and {DELIVER_AT_HEADER}; send one of them."
        )
    return Attributes(priority, delay_ms, deliver_at_ms, ttl_ms)


def parse_priority(content: bytes | None) -> int:
    """Parse the number of a lane from its name or its digit."""
    priority = _PRIORITIES.get((content or b"").lower())
    if priority is None:
        raise InvalidAttribute(
            f"Header {PRIORITY_HEADER} is {_shown(content)}; send one of "
            f"{', '.join(PRIORITY_NAMES)}, or a digit from 0 to {len(PRIORITY_NAMES) - 1}."
        )
    return priority


def parse_moment(content: bytes | None) -> int:
    """Parse a time, in milliseconds since 1970 or in RFC 3339, to milliseconds since 1970."""
    data = content or b""
    if data.isdigit() and len(data) <= _DIGITS_MAX:
        return int(data)
    match = _RFC_3339.fullmatch(data.decode("ascii", "replace"))
    if match is not None:
        day, time, fraction, zone = match.groups()
        try:
            moment = datetime.fromisoformat(f"{day}T{time}{zone.upper()}")
            milliseconds = (moment - _EPOCH) // _MILLISECOND
        except (ValueError, OverflowError):
            milliseconds = -1  # a date that does not exist, or a leap second
        if milliseconds >= 0:
            # Round up to a whole millisecond, so that nothing is early.
            return milliseconds + -(-int((fraction or "0").ljust(9, "0")) // 1_000_000)
    raise InvalidAttribute(
        f"Header {DELIVER_AT_HEADER} is {_shown(content)}; send milliseconds since 1970 or a "
        "time like 2030-01-31T12:00:00Z."
    )


def check_due(due_ms: int, *, now_ms: int) -> None:
    """Refuse a due time beyond the limit for schedules."""
    if due_ms - now_ms > DELAY_MS_MAX:
        raise InvalidAttribute(
            f"The delivery time {due_ms} ms since 1970 is more than a hundred years "
            "from now; choose an earlier time."
        )


def _parse_number(name: str, content: bytes | None, most: int) -> int:
    data = content or b""
    if data.isdigit() and len(data) <= _DIGITS_MAX and int(data) <= most:
        return int(data)
    raise InvalidAttribute(
        f"Header {name} is {_shown(content)}; send a whole number of milliseconds from 0 to {most}."
    )


def _shown(content: bytes | None) -> str:
    return "null" if content is None else repr(content[:_TEXT_SHOWN])[1:]


def header_text(headers: tuple[Header, ...], wanted: str) -> str | None:
    """The text of a header, or None if it is absent or not text."""
    for name, content in headers:
        if name == wanted and content is not None:
            try:
                return content.decode()
            except UnicodeDecodeError:
                return None
    return None
