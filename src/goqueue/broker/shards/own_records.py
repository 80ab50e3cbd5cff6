"""Recovery of what the broker itself wrote last before a crash.

Parts of the broker move messages from one log to another in two steps: append the message there,
and, when that is committed, record here that it is done. They write as idempotent producers, one
batch at a time per partition. So whatever a crash left between the two steps is in the newest
batches of that producer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from goqueue.broker.topics.topics import Topic, Topics
from goqueue.cluster.facts import NamedProducer
from goqueue.model.batch import BatchHeader, Record, decode_batch
from goqueue.model.errors import CorruptBatch
from goqueue.partition import Partition

_log = logging.getLogger(__name__)


def readable_batches(partition: Partition, *, name: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield all intact batches of an internal partition, and log the damaged ones.

    `name` describes their content.
    """
    offset, end = partition.start_offset, partition.end_offset
    while offset < end:
        try:
            for header, batch in partition.log.batches(offset, until_offset=end):
                yield header, batch
                offset = header.next_offset
            return
        except CorruptBatch as error:
            _log.error("%s is damaged: %s", name, error)
            if error.next_offset is None or error.next_offset <= offset:
                return
            offset = error.next_offset


def newest_records(topics: Topics, producer: NamedProducer) -> Iterator[tuple[Topic, Record]]:
    """Yield the records of a producer's newest batches, in all partitions of all topics."""
    known = {producer.producer_id, producer.producer_id_before} - {-1}
    for topic in topics:
        for partition in topic.partitions:
            for state in partition.producers:
                if state.producer_id in known:
                    for batch in state.batches:
                        for record in _read(partition, batch.base_offset, batch.last_offset):
                            yield topic, record


def _read(partition: Partition, first: int, last: int) -> list[Record]:
    records: list[Record] = []
    start = max(first, partition.start_offset)
    try:
        for _, batch in partition.log.batches(start, until_offset=last + 1):
            records += decode_batch(batch)
    except CorruptBatch as error:
        _log.error("a batch of the broker in %s cannot be read: %s", partition.name, error)
    return records
