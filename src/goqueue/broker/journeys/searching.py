"""Searching the partitions of the journal that this node leads.

A call reads a bounded part of the journal and says where the next one continues. It gives the
event loop to others after each slice.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence

from goqueue.broker.journeys.chunks import (
    JournalIndex,
    PlaceKey,
    place_and_range,
    place_key,
    slices,
)
from goqueue.broker.journeys.queries import (
    CountedEvents,
    FoundEvents,
    FoundRecord,
    JournalQuery,
)
from goqueue.broker.topics.topics import Topics
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Cancellation, Promise
from goqueue.model.batch import Record
from goqueue.model.errors import (
    CorruptJourney,
    RequestTimedOut,
    UnsupportedVersion,
    UpgradeInProgress,
)
from goqueue.model.names import JOURNEYS_TOPIC, TopicPartition
from goqueue.partition import Partition
from goqueue.tracing.encoding import (
    check_known,
    decode_events,
    decode_key,
    encode_events,
    is_events,
)
from goqueue.tracing.events import Event, Kind, Place, Span
from goqueue.tracing.filters import EventFilter, count_events

READ_BYTES_MAX = 64 << 20  # of the journal, by one call
EVENTS_MAX = 10_000  # that one call returns

_log = logging.getLogger(__name__)


def events_of(found: Sequence[FoundRecord]) -> Iterator[tuple[int, Place, list[Event]]]:
    """Yield the offsets of records, and their events with what these are about."""
    for one in found:
        place = decode_key(one.key).place
        yield one.offset, place, decode_events(place, one.value)[1]


class JournalSearch:
    """Finds and counts events in the partitions of the journal that this node leads."""

    def __init__(self, clock: Clock, topics: Topics) -> None:
        self._clock = clock
        self._topics = topics
        self._indexes: dict[int, JournalIndex] = {}

    def number_of(self, name: TopicPartition) -> int:
        """Return the partition of the journal that has the events about a partition."""
        topic = self._topics.find(JOURNEYS_TOPIC)
        return zlib.crc32(str(name).encode()) % (1 if topic is None else topic.partition_count)

    async def find(
        self, number: int, query: JournalQuery, *, begin: int, cancellation: Cancellation
    ) -> FoundEvents:
        """Return the wanted events in a partition of the journal from an offset on."""
        wanted = _filter_of(query)
        found: list[FoundRecord] = []
        scan = _Scan(begin)
        count = 0
        async for records in self._slices(number, query, scan, cancellation):
            for record, place, span, events in _about(records, query):
                chosen = [one for one in events if wanted.selects(one) and _is_inside(one, query)]
                if chosen:
                    found.append(FoundRecord(record.offset, *encode_events(place, span, chosen)))
                    count += len(chosen)
                if count >= EVENTS_MAX:
                    return FoundEvents(found, record.offset + 1, False, scan.read_bytes)
        return FoundEvents(found, scan.offset, scan.is_end, scan.read_bytes)

    async def count(
        self, number: int, query: JournalQuery, *, begin: int, cancellation: Cancellation
    ) -> CountedEvents:
        """Count the messages of the wanted events in a partition of the journal."""
        wanted = _filter_of(query)
        totals: dict[tuple[int, str], tuple[int, int]] = {}
        scan = _Scan(begin)
        async for records in self._slices(number, query, scan, cancellation):
            for _, _, _, events in _about(records, query):
                for kind, group, messages, size in count_events(events, wanted):
                    before = totals.get((kind, group), (0, 0))
                    totals[int(kind), group] = before[0] + messages, before[1] + size
        rows = [(*key, *sums) for key, sums in totals.items()]
        return CountedEvents(rows, scan.offset, scan.is_end, scan.read_bytes)

    async def _slices(
        self, number: int, query: JournalQuery, scan: _Scan, cancellation: Cancellation
    ) -> AsyncIterator[list[Record]]:
        """Yield the records of those chunks that may have what is wanted, a slice at a time."""
        partition = self._partition(number)
        index = await self._index(partition, cancellation)
        scan.offset = max(scan.offset, partition.start_offset)
        for chunk in list(index.chunks):
            if chunk.end_offset <= scan.offset:
                continue
            if chunk.may_have(_place_of(query), query.first, query.end, query.from_ms):
                start = max(chunk.first_offset, scan.offset)
                for size, next_offset, records in slices(partition, start, chunk.end_offset):
                    yield [one for one in records if one.offset >= scan.offset]
                    scan.offset = next_offset
                    scan.read_bytes += size
                    if scan.read_bytes >= READ_BYTES_MAX:
                        return
                    await self._pause(cancellation)
            scan.offset = max(scan.offset, chunk.end_offset)
        scan.is_end = True

    def _partition(self, number: int) -> Partition:
        partition = self._topics.get(JOURNEYS_TOPIC).partition(number)
        partition.check_leading()
        return partition

    async def _index(self, partition: Partition, cancellation: Cancellation) -> JournalIndex:
        """Return the index of a partition, complete up to what is committed now."""
        number = partition.name.partition
        index = self._indexes.get(number)
        if index is None or index.partition is not partition:
            index = self._indexes[number] = JournalIndex(partition)
        while not index.is_complete:
            index.extend()
            await self._pause(cancellation)
        return index

    async def _pause(self, cancellation: Cancellation) -> None:
        """Let other work of the event loop run."""
        promise: Promise[None] = Promise()
        self._clock.call_soon(lambda: promise.resolve(None))
        await promise
        if cancellation.is_cancelled:
            raise RequestTimedOut("The client has disconnected.")


class _Scan:
    """How far a call is."""

    __slots__ = ("is_end", "offset", "read_bytes")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.read_bytes = 0
        self.is_end = False


def _about(
    records: Sequence[Record], query: JournalQuery
) -> Iterator[tuple[Record, Place, Span, list[Event]]]:
    """Yield the records that may have wanted events, decoded; damaged ones are skipped.

    Raise `UpgradeInProgress` for one of a later release: the answer would be incomplete.
    """
    place = _place_of(query)
    for record in records:
        if record.key is None or record.value is None:
            continue
        try:
            if not is_events(record.key):
                check_known(record.key)
                continue
            its, first, end = place_and_range(record.key)
            if (place is None or its == place) and first < query.end and query.first < end:
                about = decode_key(record.key).place
                yield record, about, *decode_events(about, record.value)
        except CorruptJourney as error:
            _log.error("offset %d of the journal of journeys: %s", record.offset, error)
        except UnsupportedVersion as error:
            raise UpgradeInProgress(
                f"This node cannot read all journeys; retry later. {error}"
            ) from None


def _place_of(query: JournalQuery) -> PlaceKey | None:
    if query.topic_id is None or query.partition is None:
        return None
    return place_key(query.topic_id, query.partition)


def _filter_of(query: JournalQuery) -> EventFilter:
    kinds = frozenset(map(Kind, query.kinds))
    return EventFilter(kinds, query.group, query.from_ms, query.until_ms)


def _is_inside(event: Event, query: JournalQuery) -> bool:
    return event.first < query.end and query.first < event.end
