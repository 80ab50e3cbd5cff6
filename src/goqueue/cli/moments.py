"""Durations, times and positions in a partition, as users write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from goqueue.client import Position
from goqueue.config.kinds import DURATION, INT64_MAX, Number
from goqueue.model.errors import InvalidRequest

_DURATION = Number(DURATION, at_least=0, at_most=INT64_MAX)
POSITION_METAVAR = "earliest|latest|OFFSET|2h|TIME"


def now_ms() -> int:
    """The wall-clock time of this machine."""
    return time.time_ns() // 1_000_000


def read_position(text: str, *, now_ms: int) -> Position:
    """`earliest`, `latest`, an offset, a duration before now, or an RFC 3339 time."""
    word = text.strip()
    if word.lower() == "earliest":
        return Position.earliest()
    if word.lower() == "latest":
        return Position.latest()
    if word.isascii() and word.isdigit():
        return Position.at_offset(int(word))
    try:
        return Position.ago(_DURATION.read(word), now_ms=now_ms)
    except ValueError:
        pass
    try:
        return Position.at_time(_rfc3339_ms(word))
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not a position; write earliest, latest, an offset, a duration such "
            "as 90s, 15m, 2h or 7d, or a time such as 2026-01-31T12:00:00Z."
        ) from None


def read_time_ms(text: str) -> int:
    """An RFC 3339 time, or milliseconds since 1970."""
    word = text.strip()
    if word.isascii() and word.isdigit():
        return int(word)
    try:
        return _rfc3339_ms(word)
    except ValueError:
        raise InvalidRequest(
            f"{text!r} is not a time; write 2026-01-31T12:00:00Z, or milliseconds since 1970."
        ) from None


def read_duration_ms(text: str) -> int:
    """A duration such as 90s, 15m, 2h or 7d."""
    try:
        return _DURATION.read(text)
    except ValueError as error:
        raise InvalidRequest(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def show_time(timestamp_ms: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # producers may write any number
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rfc3339_ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    # A time without a zone is UTC, so that a command means the same on every machine.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def read_offsets(texts: list[str], what: str) -> list[tuple[int, int]]:
    """Pairs such as `0:42`, a partition and an offset."""
    offsets = []
    for text in texts:
        number, colon, offset = text.partition(":")
        if not (colon and number.isdecimal() and offset.isdecimal()):
            raise InvalidRequest(
                f"{what} {text} is not valid; write PARTITION:OFFSET, such as 0:42."
            )
        offsets.append((int(number), int(offset)))
    return offsets
