"""After a crash: which messages had been released, although their log does not say so yet."""

from __future__ import annotations

import logging

from goqueue.broker.schedule_log import ScheduleLog
from goqueue.broker.topics import Topics
from goqueue.cluster.metadata import NamedProducer
from goqueue.delivery.schedules import ScheduleIds
from goqueue.model.attributes import SCHEDULE_ID_HEADER
from goqueue.model.batch import Record, decode_batch
from goqueue.model.errors import CorruptBatch, UnknownSchedule
from goqueue.partition import Partition

_log = logging.getLogger(__name__)


def end_released(
    topics: Topics, logs: list[ScheduleLog], ids: ScheduleIds, producer: NamedProducer
) -> None:
    """Mark as released what the newest batches of our producer carry, in whatever topic."""
    known = {producer.producer_id, producer.producer_id_before} - {-1}
    for topic in topics:
        for partition in topic.partitions:
            for state in partition.producers:
                if state.producer_id in known:
                    for batch in state.batches:
                        _end(partition, batch.base_offset, batch.last_offset, logs, ids)


def _end(
    partition: Partition, first: int, last: int, logs: list[ScheduleLog], ids: ScheduleIds
) -> None:
    found: dict[int, list[int]] = {}
    start = max(first, partition.start_offset)
    try:
        for _, batch in partition.log.batches(start, until_offset=last + 1):
            for record in decode_batch(batch):
                for log, number in _places(record, ids):
                    if log < len(logs) and logs[log].agenda.is_waiting(number):
                        found.setdefault(log, []).append(number)
    except CorruptBatch as error:
        _log.error("released messages in %s cannot be read: %s", partition.name, error)
    for log, numbers in found.items():
        logs[log].end(numbers, is_released=True)


def _places(record: Record, ids: ScheduleIds) -> list[tuple[int, int]]:
    """Where a released message waited: log and number, from its schedule id, which comes last."""
    for name, content in reversed(record.headers):
        if name == SCHEDULE_ID_HEADER and content is not None:
            try:
                return [ids.read(content.decode("ascii", "replace"))]
            except UnknownSchedule:
                return []
    return []
