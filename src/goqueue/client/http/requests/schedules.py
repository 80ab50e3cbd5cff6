"""Schedules: delayed messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from goqueue.client.http.failures import error_of_problem
from goqueue.client.http.messages import Header, content, headers_of
from goqueue.client.http.moments import Duration, Moment, duration_ms, moment_ms
from goqueue.client.http.request import (
    Repeat,
    Request,
    body_of,
    nothing,
    path_of,
    query_of,
    reading,
)
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.wire.http.bodies import schedules as bodies
from goqueue.wire.http.bodies.schedules import ScheduleEntry, ScheduleStats

_read_page = reading(bodies.Schedules)
_read_count = reading(bodies.ScheduleCount)
_read_schedule = reading(bodies.Schedule)
_read_rescheduled = reading(bodies.Rescheduled)
_read_cancelled = reading(bodies.CancelledSchedules)
_read_stats = reading(bodies.ScheduleStats)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A delayed message. Without a partition, one is chosen when it is released."""

    id: str
    topic: str
    partition: int | None
    deliver_at_ms: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules by due time; an empty cursor means that there are no more."""

    schedules: tuple[ScheduleEntry, ...]
    cursor: str


class ScheduleRequests:
    def list_page(
        self,
        *,
        topic: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> Request[SchedulePage]:
        """Return schedules due in a range of time, earliest first."""
        query = bodies.ListSchedules(
            topic=topic, from_=_due(from_), until=_due(until), limit=limit, cursor=cursor
        )
        return Request("GET", path_of("schedules"), _page, query_of(query))

    def count(
        self,
        *,
        topic: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[int]:
        """Return the number of schedules."""
        query = bodies.CountSchedules(topic=topic, from_=_due(from_), until=_due(until))
        return Request("GET", path_of("schedules", "count"), _count, query_of(query))

    def get(self, schedule_id: str) -> Request[Schedule]:
        """Return one delayed message with its content."""
        return Request("GET", path_of("schedules", schedule_id), _schedule)

    def cancel(self, schedule_id: str) -> Request[None]:
        """Cancel a delayed message; raise `ScheduleReleased` if it was released already."""
        path = path_of("schedules", schedule_id)
        return Request("DELETE", path, nothing, repeat=Repeat.AMBIGUOUS)

    def cancel_many(self, schedule_ids: Sequence[str]) -> Request[list[GoQueueError | None]]:
        """Cancel up to 1000 delayed messages; return None or the error for each."""
        body = bodies.CancelSchedules(ids=list(schedule_ids))
        path = path_of("schedules", "cancel")
        return Request("POST", path, _cancelled, body=body_of(body), repeat=Repeat.AMBIGUOUS)

    def reschedule(
        self,
        schedule_id: str,
        *,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
    ) -> Request[int]:
        """Change the due time of a message; return it in milliseconds since 1970."""
        if (delay is None) == (deliver_at is None):
            raise InvalidRequest("Give the new time as delay or as deliver_at, not both.")
        body = bodies.Reschedule(
            delay_ms=None if delay is None else duration_ms(delay),
            deliver_at=None if deliver_at is None else moment_ms(deliver_at),
        )
        path = path_of("schedules", schedule_id)
        return Request("PATCH", path, _rescheduled, body=body_of(body))

    def stats(self) -> Request[ScheduleStats]:
        """Return the number of schedules, and how late messages were released."""
        return Request("GET", path_of("schedules", "stats"), _read_stats)


def _due(moment: Moment | None) -> str | None:
    return None if moment is None else str(moment_ms(moment))


def _page(data: bytes) -> SchedulePage:
    answer = _read_page(data)
    return SchedulePage(schedules=tuple(answer.schedules), cursor=answer.cursor)


def _count(data: bytes) -> int:
    return _read_count(data).count


def _rescheduled(data: bytes) -> int:
    return _read_rescheduled(data).deliver_at


def _cancelled(data: bytes) -> list[GoQueueError | None]:
    return [
        None if isinstance(one.problem, msgspec.UnsetType) else error_of_problem(one.problem)
        for one in _read_cancelled(data).results
    ]


def _schedule(data: bytes) -> Schedule:
    answer = _read_schedule(data)
    return Schedule(
        id=answer.id,
        topic=answer.topic,
        partition=answer.partition,
        deliver_at_ms=answer.deliver_at,
        timestamp_ms=answer.timestamp,
        key=content(answer.key, answer.key_encoding),
        value=content(answer.value, answer.value_encoding),
        headers=headers_of(answer.headers),
    )
