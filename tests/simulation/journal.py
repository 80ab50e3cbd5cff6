"""Reads the journal of journeys of a broker, as it is in its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from goqueue.model.batch import decode_batch
from goqueue.model.names import JOURNEYS_TOPIC
from goqueue.partition import Partition
from goqueue.tracing.encoding import decode_events, decode_key, is_events
from goqueue.tracing.events import Event, Kind, Place, Span


class Entry(NamedTuple):
    place: Place
    span: Span
    event: Event


def entries(partitions: Iterable[Partition]) -> Iterator[Entry]:
    """Yield the events of some partitions of the journal, in the order of each."""
    for partition in partitions:
        assert partition.name.topic == JOURNEYS_TOPIC
        start, end = partition.start_offset, partition.high_watermark
        for _, batch in partition.log.batches(start, until_offset=end):
            for record in decode_batch(batch):
                if is_events(record.key):
                    assert record.key is not None
                    assert record.value is not None
                    place, first, until = decode_key(record.key)
                    span, events = decode_events(place, record.value)
                    for event in events:
                        assert first <= event.first < event.end <= until
                        yield Entry(place, span, event)


def of_message(found: Iterable[Entry], topic: str, partition: int, offset: int) -> list[Event]:
    """Return the events of one message."""
    return [
        event
        for place, _, event in found
        if (place.topic, place.partition) == (topic, partition)
        and event.first <= offset < event.end
    ]


def kinds_of(found: Iterable[Entry], topic: str, partition: int, offset: int) -> list[Kind]:
    return [event.kind for event in of_message(found, topic, partition, offset)]
