"""Schedules: delayed messages."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.client.grpc.failures import error_of
from goqueue.client.grpc.messages import headers_of
from goqueue.client.grpc.request import call
from goqueue.client.http.moments import Duration, Moment, duration_ms, moment_ms
from goqueue.client.http.request import Repeat, Request
from goqueue.client.http.requests import schedules as http
from goqueue.client.http.requests.schedules import Schedule, SchedulePage
from goqueue.model.errors import GoQueueError, InvalidRequest
from goqueue.wire.grpc.messages import schedule_service_pb2 as wire
from goqueue.wire.http.bodies.schedules import ScheduleEntry


class ScheduleRequests(http.ScheduleRequests):
    def list_page(
        self,
        *,
        topic: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> Request[SchedulePage]:
        request = wire.ListSchedulesRequest(
            page_size=limit,
            page_token=cursor,
            topic=topic or "",
            from_ms=_ms(from_),
            until_ms=_ms(until),
        )
        return call("ScheduleService/ListSchedules", request, wire.ListSchedulesResponse, _page)

    def count(
        self,
        *,
        topic: str | None = None,
        from_: Moment | None = None,
        until: Moment | None = None,
    ) -> Request[int]:
        request = wire.CountSchedulesRequest(
            topic=topic or "", from_ms=_ms(from_), until_ms=_ms(until)
        )
        return call(
            "ScheduleService/CountSchedules",
            request,
            wire.CountSchedulesResponse,
            lambda response: response.count,
        )

    def get(self, schedule_id: str) -> Request[Schedule]:
        return call(
            "ScheduleService/GetSchedule",
            wire.GetScheduleRequest(id=schedule_id),
            wire.GetScheduleResponse,
            _schedule,
        )

    def cancel(self, schedule_id: str) -> Request[None]:
        many = self.cancel_many([schedule_id])

        def read(data: bytes) -> None:
            for error in many.read(data):
                if error is not None:
                    raise error

        return Request(many.method, many.path, read, body=many.body, repeat=many.repeat)

    def cancel_many(self, schedule_ids: Sequence[str]) -> Request[list[GoQueueError | None]]:
        ids = list(schedule_ids)

        def read(response: wire.CancelSchedulesResponse) -> list[GoQueueError | None]:
            failed = {one.id: error_of(one.error) for one in response.errors}
            return [failed.get(one) for one in ids]

        return call(
            "ScheduleService/CancelSchedules",
            wire.CancelSchedulesRequest(ids=ids),
            wire.CancelSchedulesResponse,
            read,
            repeat=Repeat.AMBIGUOUS,
        )

    def reschedule(
        self,
        schedule_id: str,
        *,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
    ) -> Request[int]:
        if (delay is None) == (deliver_at is None):
            raise InvalidRequest("Give the new time as delay or as deliver_at, not both.")
        request = wire.MoveScheduleRequest(
            id=schedule_id,
            delay_ms=None if delay is None else duration_ms(delay),
            deliver_at_ms=_ms(deliver_at),
        )
        return call(
            "ScheduleService/MoveSchedule",
            request,
            wire.MoveScheduleResponse,
            lambda response: response.deliver_at_ms,
        )


def _ms(moment: Moment | None) -> int | None:
    return None if moment is None else moment_ms(moment)


def _page(response: wire.ListSchedulesResponse) -> SchedulePage:
    entries = (
        ScheduleEntry(id=one.id, topic=one.topic, deliver_at=one.deliver_at_ms)
        for one in response.schedules
    )
    return SchedulePage(schedules=tuple(entries), cursor=response.next_page_token)


def _schedule(response: wire.GetScheduleResponse) -> Schedule:
    return Schedule(
        id=response.schedule.id,
        topic=response.schedule.topic,
        partition=response.partition if response.HasField("partition") else None,
        deliver_at_ms=response.schedule.deliver_at_ms,
        timestamp_ms=response.timestamp_ms,
        key=response.key if response.HasField("key") else None,
        value=response.value if response.HasField("value") else None,
        headers=headers_of(response.headers),
    )
