"""The routes of schedules; part of the table in `operations`."""

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
        "List scheduled messages, by due time.",
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
        "Count scheduled messages.",
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
        "Show how many messages wait, and how late messages were released.",
        area="schedules",
        answer=bodies.ScheduleStats,
    ),
    Operation(
        "cancelSchedules",
        "POST",
        "/v1/schedules/cancel",
        schedules.cancel_many,
        "Cancel up to 1000 scheduled messages; each has its own result.",
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
        "Show a scheduled message.",
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
        "Change the delivery time of a scheduled message.",
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
        "Cancel a scheduled message.",
        area="schedules",
        status=204,
        errors=(*_SCHEDULE, *STORING),
    ),
)
