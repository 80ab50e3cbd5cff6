"""Times in a query: `2h`, `2026-01-31T12:00:00Z`, or milliseconds."""

from __future__ import annotations

import re

from goqueue.broker.gate.areas import records
from goqueue.broker.gate.areas.records import At, Position
from goqueue.model.attributes import parse_moment
from goqueue.model.errors import InvalidAttribute
from goqueue.wire.carrier.problems import InvalidField
from goqueue.wire.http.fields import INT64_MAX

EARLIEST = "earliest"
LATEST = "latest"

_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MILLISECONDS = re.compile(r"[0-9]{1,19}")


def time_ms(text: str, *, now_ms: int, field: str) -> int:
    """A duration before now, an RFC 3339 time, or milliseconds since 1970."""
    if _MILLISECONDS.fullmatch(text) and int(text) <= INT64_MAX:
        return int(text)
    if match := _DURATION.fullmatch(text):
        return max(0, now_ms - int(match[1]) * _UNITS_MS[match[2]])
    try:
        return _rfc_3339(text)
    except InvalidAttribute:
        raise InvalidField(
            f"{text[:64]!r} is not a time; write a duration such as 2h, a time such as "
            "2026-01-31T12:00:00Z, or milliseconds since 1970.",
            field=field,
        ) from None


def due_ms(text: str, *, field: str) -> int:
    """An RFC 3339 time or milliseconds since 1970, for delivery in the future."""
    if _MILLISECONDS.fullmatch(text) and int(text) <= INT64_MAX:
        return int(text)
    try:
        return _rfc_3339(text)
    except InvalidAttribute:
        raise InvalidField(
            f"{text[:64]!r} is not a time; write one such as 2026-01-31T12:00:00Z, or milliseconds "
            "since 1970.",
            field=field,
        ) from None


def position_of(text: str, *, now_ms: int, field: str) -> Position:
    """The position for `earliest`, `latest` or a time."""
    if text == EARLIEST:
        return records.EARLIEST
    if text == LATEST:
        return records.LATEST
    return Position(At.TIME, time_ms(text, now_ms=now_ms, field=field))


def _rfc_3339(text: str) -> int:
    # In a query a "+" stands for a space unless it is escaped, which is often forgotten.
    day, has_time, rest = text.partition("T")
    return parse_moment(f"{day}{has_time}{rest.replace(' ', '+')}".encode())
