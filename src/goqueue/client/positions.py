"""Positions in a partition: the two ends, an offset, a time, the newest record."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from goqueue.model.errors import InvalidRequest


class PositionKind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    NEWEST = "newest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a partition that has not been resolved to an offset yet.

    `Position.earliest()`, `Position.at_offset(42)`, `Position.ago(3_600_000, now_ms=...)`.
    """

    kind: PositionKind
    value: int = 0

    @classmethod
    def earliest(cls) -> Position:
        """The first record in the log."""
        return cls(PositionKind.EARLIEST)

    @classmethod
    def latest(cls) -> Position:
        """After the last record."""
        return cls(PositionKind.LATEST)

    @classmethod
    def newest(cls) -> Position:
        """The record with the largest timestamp."""
        return cls(PositionKind.NEWEST)

    @classmethod
    def at_offset(cls, offset: int) -> Position:
        if offset < 0:
            raise InvalidRequest(f"Offset {offset} is negative.")
        return cls(PositionKind.OFFSET, offset)

    @classmethod
    def at_time(cls, timestamp_ms: int) -> Position:
        """The first record with this timestamp or a later one."""
        if timestamp_ms < 0:
            raise InvalidRequest("A time before 1970 is not valid.")
        return cls(PositionKind.TIME, timestamp_ms)

    @classmethod
    def ago(cls, duration_ms: int, *, now_ms: int) -> Position:
        """The first record of the last `duration_ms`."""
        return cls.at_time(max(0, now_ms - duration_ms))

    def __str__(self) -> str:
        return f"{self.kind.value} {self.value}" if self._has_value else self.kind.value

    @property
    def _has_value(self) -> bool:
        return self.kind in (PositionKind.OFFSET, PositionKind.TIME)
