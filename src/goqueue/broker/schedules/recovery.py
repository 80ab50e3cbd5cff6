"""After a crash: finds messages that were released although their log does not record it yet."""

from __future__ import annotations

from goqueue.broker.schedules.log import ScheduleLog
from goqueue.broker.shards.own_records import newest_records
from goqueue.broker.topics.topics import Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.delivery.schedules import ScheduleIds
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Record
from goqueue.model.errors import UnknownSchedule


def end_released(
    topics: Topics, logs: list[ScheduleLog], ids: ScheduleIds, producer: NamedProducer
) -> None:
    """Mark as released the messages in the newest batches of the broker's producer, in any
    topic.
    """
    found: dict[int, list[int]] = {}
    for _, record in newest_records(topics, producer):
        for log, number in _places(record, ids):
            if log < len(logs) and logs[log].agenda.is_waiting(number):
                found.setdefault(log, []).append(number)
    for log, numbers in found.items():
        logs[log].end(numbers, is_released=True)


def _places(record: Record, ids: ScheduleIds) -> list[tuple[int, int]]:
    """Where a released message waited: log and number, from its schedule id, the last header."""
    for name, content in reversed(record.headers):
        if name == SCHEDULE_ID_HEADER and content is not None:
            try:
                return [ids.read(content.decode("ascii", "replace"))]
            except UnknownSchedule:
                return []
    return []
