"""The routes of schedules; a part of the one table in `operations`."""

from __future__ import annotations

from goqueue.model import errors
from goqueue.wire.carrier.routing import READING, ROUTED, STORING, Operation
from goqueue.wire.http.bodies import schedules as bodies
from goqueue.wire.http.handlers import schedules

_SCHEDULE = (errors.UnknownSchedule, errors.ScheduleReleased, *ROUTED)

SCHEDULES = (
    Operation(
        "listSchedules",
        "GET",
        "/v1/schedules",
        schedules.list_all,
        "List the messages that wait, by the time they are due.",
        area="schedules",
        request=bodies.ListSchedules,
        answer=bodies.Schedules,
        errors=(errors.InvalidRequest, errors.UnknownSchedule, *READING),
    ),
    Operation(
        "countSchedules",
        "GET",
        "/v1/schedules/count",
        schedules.count,
        "Count the messages that wait.",
        area="schedules",
        request=bodies.CountSchedules,
        answer=bodies.ScheduleCount,
        errors=READING,
    ),
    Operation(
        "scheduleStats",
        "GET",
        "/v1/schedules/stats",
        schedules.stats,
        "Show how much waits, and how late messages were released.",
        area="schedules",
        answer=bodies.ScheduleStats,
    ),
    Operation(
        "cancelSchedules",
        "POST",
        "/v1/schedules/cancel",
        schedules.cancel_many,
        "Let up to 1000 messages never appear; a result for each.",
        area="schedules",
        request=bodies.CancelSchedules,
        answer=bodies.CancelledSchedules,
        errors=STORING,
        example={"ids": ["AAAAAAAAAAAAAAAA"]},
    ),
    Operation(
        "showSchedule",
        "GET",
        "/v1/schedules/{schedule_id}",
        schedules.show,
        "Show a message that waits.",
        area="schedules",
        request=bodies.ShowSchedule,
        answer=bodies.Schedule,
        errors=(*_SCHEDULE, errors.CorruptBatch, *READING),
    ),
    Operation(
        "reschedule",
        "PATCH",
        "/v1/schedules/{schedule_id}",
        schedules.reschedule,
        "Let a message appear at another time.",
        area="schedules",
        request=bodies.Reschedule,
        answer=bodies.Rescheduled,
        errors=(*_SCHEDULE, errors.InvalidAttribute, *STORING),
        example={"delay_ms": 60_000},
    ),
    Operation(
        "cancelSchedule",
        "DELETE",
        "/v1/schedules/{schedule_id}",
        schedules.cancel,
        "Let a message never appear.",
        area="schedules",
        status=204,
        errors=(*_SCHEDULE, *STORING),
    ),
)
