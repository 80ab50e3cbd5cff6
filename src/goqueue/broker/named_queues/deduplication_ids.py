"""The deduplication ids of the last minutes, read back from the records of a topic.

The ids in memory are lost with a node, or stay behind when another node becomes the owner. The
records contain their ids, so they are read: from the first record of that time up to the end of
each partition as its leader reports it. Everything acknowledged lies before that end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from goqueue.broker.queues.positions import Look
from goqueue.broker.reading.records import Place, Reading
from goqueue.broker.topics.topics import Topic
from goqueue.delivery import Kept
from goqueue.loop.clock import Clock
from goqueue.loop.promise import Promise
from goqueue.model.attributes import (
    DEDUPLICATED_AT_HEADER,
    DEDUPLICATION_HEADER,
    MESSAGE_ID_HEADER,
    header_text,
)
from goqueue.model.batch import Record
from goqueue.model.dead_letters import PREFIX as DEAD_PREFIX
from goqueue.model.errors import RequestTimedOut

PAGE_RECORDS_MAX = 1000
PAGE_BYTES_MAX = 4 << 20
# How long the end of a partition may take to be committed before the sender has to retry.
COMMIT_WAIT_MS = 5_000


class RecentId(NamedTuple):
    deduplication_id: str
    key: bytes | None
    kept: Kept
    age_ms: int


class Read(Protocol):
    def __call__(
        self,
        places: Sequence[Place],
        *,
        records_max: int,
        bytes_max: int,
        wait_ms: int = 0,
        is_committed_only: bool = True,
    ) -> Reading: ...


class RecentIds:
    """Reads the deduplication ids of recent records from topics."""

    def __init__(self, clock: Clock, *, look: Look, read: Read) -> None:
        self._clock = clock
        self._look = look
        self._read = read

    async def read(self, topic: Topic, window_ms: int, firsts: Mapping[int, int]) -> list[RecentId]:
        """Return the ids stored in the last `window_ms`, in the order of each partition.

        `firsts` are offsets by partition; records before them are ignored.
        """
        since_ms = max(0, self._clock.wall_ms() - window_ms)
        places = await self._places(topic, since_ms, firsts)
        found: list[RecentId] = []
        while places:
            # Open transactions must not block this: records with such ids are in none.
            page = await self._read(
                places,
                records_max=PAGE_RECORDS_MAX,
                bytes_max=PAGE_BYTES_MAX,
                wait_ms=COMMIT_WAIT_MS,
                is_committed_only=False,
            ).promise
            if page.is_empty and [one.offset for one in page.places] == [
                one.offset for one in places
            ]:
                raise RequestTimedOut(
                    f"The end of topic {topic.name!r} is not committed yet, so recently sent "
                    "deduplication ids are not known; retry."
                )
            now_ms = self._clock.wall_ms()
            found += [one for _, record in page.records if (one := _recent(record, now_ms))]
            places = [one for one in page.places if _is_left(one)]
            await self._rest()
        return found

    async def _places(self, topic: Topic, since_ms: int, firsts: Mapping[int, int]) -> list[Place]:
        numbers = range(len(topic.partitions))
        places: list[Place] = []
        for number, bounds in enumerate(await self._look(topic, numbers, times_ms=[since_ms])):
            found = bounds.find_timestamp(since_ms)
            # Only committed records were searched by time. A new leader may have more records
            # that are committed without having received the high watermark for them yet.
            first = bounds.high_watermark if found is None else found.offset
            first = max(first, firsts.get(number, 0))
            if first < bounds.end_offset:
                places.append(Place(topic.partition(number), first, bounds.end_offset))
        return places

    def _rest(self) -> Promise[None]:
        """Yield to the event loop before the next page."""
        rested: Promise[None] = Promise()
        self._clock.call_soon(lambda: rested.resolve(None))
        return rested


def _is_left(place: Place) -> bool:
    assert place.until_offset is not None
    return place.offset < place.until_offset


def _recent(record: Record, now_ms: int) -> RecentId | None:
    """Return the id of a record, unless it is a dead letter of a message sent elsewhere."""
    headers = record.headers
    deduplication_id = header_text(headers, DEDUPLICATION_HEADER)
    message_id = header_text(headers, MESSAGE_ID_HEADER)
    if deduplication_id is None or message_id is None:
        return None
    if any(name.startswith(DEAD_PREFIX) for name, _ in headers):
        return None
    sent = header_text(headers, DEDUPLICATED_AT_HEADER) or ""
    sent_ms = int(sent) if sent.isascii() and sent.isdigit() else record.timestamp_ms
    kept = Kept(message_id, record.offset)
    return RecentId(deduplication_id, record.key, kept, now_ms - sent_ms)
