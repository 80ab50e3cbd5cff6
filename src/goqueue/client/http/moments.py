"""Converts times and durations from Python's types to those of the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from goqueue.model.errors import InvalidRequest

Duration: TypeAlias = float | timedelta  # a number is in seconds
Moment: TypeAlias = datetime | int  # a number is in milliseconds since 1970
Position: TypeAlias = str | datetime | int | timedelta  # also "earliest"; a timedelta before now

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def duration_ms(duration: Duration) -> int:
    """Convert to milliseconds, rounded up: never shorter than requested."""
    if not isinstance(duration, timedelta):
        try:
            duration = timedelta(seconds=duration)
        except (OverflowError, ValueError):
            raise InvalidRequest(f"{duration} s is not a valid duration.") from None
    if duration < timedelta(0):
        raise InvalidRequest(f"A duration cannot be negative: {duration}.")
    return -(-duration // _MILLISECOND)


def moment_ms(moment: Moment) -> int:
    """Convert to milliseconds since 1970, rounded up: never early."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise InvalidRequest(
            f"{moment} has no time zone, so it means different moments on different machines; "
            "write datetime(..., tzinfo=UTC), or use moment.astimezone()."
        )
    return -(-(moment - _EPOCH) // _MILLISECOND)


def position_text(position: Position) -> str:
    """A start or end position as a query parameter."""
    if isinstance(position, str):
        return position
    if isinstance(position, timedelta):
        return f"{duration_ms(position)}ms"
    return str(moment_ms(position))
