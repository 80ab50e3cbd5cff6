"""Schedules: messages with a delivery time in the future."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from goqueue.wire.carrier.bodies import Answer, BatchAnswer, Body
from goqueue.wire.carrier.problems import Problem
from goqueue.wire.http.bodies.messages import HeaderRead
from goqueue.wire.http.fields import (
    DurationMs,
    Encoding,
    Limit,
    ReadEncoding,
    Timestamp,
    TopicName,
)

CANCELS_MAX = 1000  # in one call

Due = Annotated[
    Annotated[str, Meta(min_length=1, max_length=64)] | None,
    Meta(description="A time such as `2026-01-31T12:00:00Z`, or milliseconds since 1970."),
]


class CountSchedules(Body, kw_only=True):
    """A selection of schedules: those due at or after one time and before another."""

    topic: TopicName | None = None
    from_: Due = field(name="from", default=None)
    until: Due = None


class ListSchedules(CountSchedules, kw_only=True):
    limit: Limit = 100
    cursor: Annotated[
        str,
        Meta(
            max_length=200, description="`cursor` of the last response; by default from the start."
        ),
    ] = ""


class ScheduleEntry(Answer, kw_only=True):
    id: str
    topic: str
    deliver_at: int


class Schedules(Answer, kw_only=True):
    """A page of schedules; `cursor` is the start of the next page, and empty at the end."""

    schedules: list[ScheduleEntry]
    cursor: str


class ScheduleCount(Answer, kw_only=True):
    count: int


class ShowSchedule(Body, kw_only=True):
    encoding: ReadEncoding = "utf8"


class Schedule(Answer, kw_only=True):
    """A scheduled message. Without a partition, it is chosen by key at delivery."""

    id: str
    topic: str
    partition: int | None
    deliver_at: int
    timestamp: int
    key: str | None
    key_encoding: Encoding
    value: str | None
    value_encoding: Encoding
    headers: list[HeaderRead]


class Reschedule(Body, kw_only=True):
    """The new delivery time; exactly one of the two."""

    delay_ms: Annotated[DurationMs | None, Meta(description="From now on.")] = None
    deliver_at: Annotated[
        Timestamp | str | None,
        Meta(
            description="Milliseconds since 1970 or RFC 3339; a time that has passed means at once."
        ),
    ] = None


class Rescheduled(Answer, kw_only=True):
    id: str
    deliver_at: int


class CancelSchedules(Body, kw_only=True):
    """Cancel these schedules."""

    ids: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=64)]],
        Meta(min_length=1, max_length=CANCELS_MAX),
    ]


class CancelResult(Answer, omit_defaults=True, gc=False):
    """The result for one schedule; without a problem it is cancelled."""

    id: str
    problem: Problem | UnsetType = UNSET


class CancelledSchedules(BatchAnswer, kw_only=True):
    """One result per schedule, in the order of the request."""

    results: list[CancelResult]
    failed: Annotated[int, Meta(description="Number of schedules that were not cancelled.")]


class ScheduleStats(Answer, kw_only=True):
    """Counts of schedules by state, and how late releases were since the node started."""

    pending: int
    released: int
    cancelled: int
    dead_lettered: int
    dropped: int
    late_ms_p50: int
    late_ms_p99: int
    late_ms_max: int
    next_deliver_at: int | None
