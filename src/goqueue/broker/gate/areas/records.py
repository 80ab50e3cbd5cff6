"""Operations on the records of partitions: publish, read, find, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from goqueue.broker.gate.charges import bytes_searched, one_record, records_of_page
from goqueue.broker.gate.operation import Area, Arguments, operation, query, topic
from goqueue.broker.gate.views import Bounds, PageView, RecordStream
from goqueue.broker.publishing.publisher import Outgoing, Published, PublishResult, Scheduled
from goqueue.broker.quotas.quotas import size_of
from goqueue.broker.reading.positions import (
    EARLIEST,
    LATEST,
    At,
    FoundOffset,
    Position,
    Range,
    Span,
    find_offset,
    find_places,
    offset_at,
    range_of,
    times_of,
)
from goqueue.broker.reading.record_search import (
    RecordFilter,
    SearchPage,
    SearchPart,
    merge_parts,
)
from goqueue.broker.reading.records import Page, Place, Reading
from goqueue.broker.replication.deletions import DELETION_TIMEOUT_MS
from goqueue.loop.promise import Cancellation, Promise, promised
from goqueue.model.access import Action, Resource, ResourceKind
from goqueue.model.batch import Record
from goqueue.model.errors import GoQueueError, InternalTopic, RecordsKept, UnknownMessage
from goqueue.model.session import Session
from goqueue.model.tenants import TopicName

if TYPE_CHECKING:
    from goqueue.broker.broker import Broker

__all__ = [
    "EARLIEST",
    "LATEST",
    "At",
    "Bounds",
    "FoundOffset",
    "Outgoing",
    "PageView",
    "Position",
    "PublishResult",
    "Published",
    "Range",
    "RecordFilter",
    "RecordStream",
    "RecordsArea",
    "Scheduled",
    "SearchPage",
    "Span",
]

SEARCH_BYTES_MAX = 1 << 30  # read by one call: some 100 ms if it is in memory
SEARCH_BYTES_MIN = 16 << 20  # of each partition
METERED_BYTES_MIN = 256 << 10  # of each partition, for a client with a rate
SEARCHED_AT_ONCE = 32  # partitions; the others are left to the next call
OFFSET_MAX = (1 << 63) - 1


def _leader(broker: Broker, arguments: Arguments) -> int | None:
    """Return the leader of a partition; any node can refuse one that does not exist."""
    found = broker.topics.find(arguments["topic"])
    number = arguments["partition"]
    if found is None or not 0 <= number < found.partition_count:
        return None
    return None if broker.leaders.is_here(found, number) else broker.leaders.node_of(found, number)


class RecordsArea(Area):
    """The records of partitions: publish, read, find, delete."""

    # Publishing

    @operation(Action.WRITE, topic())
    def publish(
        self,
        session: Session,
        *,
        topic: TopicName,
        records: Sequence[Record | Outgoing],
        partition: int | None = None,
        waits: bool = True,
        now_ms: int | None = None,
    ) -> Promise[list[PublishResult]]:
        """Store records, or schedule delayed ones; return a result for each.

        A missing topic is created, if the settings allow that.
        """
        if self._broker.quotas.is_active:
            self._broker.quotas.check_produce(session, [_record(one) for one in records])
        if self._broker.topics.find(topic) is None:
            return promised(self._publish_first(session, topic, records, partition, waits, now_ms))
        return self._broker.publish(
            topic, records, partition=partition, waits=waits, now_ms=now_ms, session=session
        )

    async def _publish_first(
        self,
        session: Session,
        topic: str,
        records: Sequence[Record | Outgoing],
        partition: int | None,
        waits: bool,
        now_ms: int | None,
    ) -> list[PublishResult]:
        await self._create_topic(session, topic)
        return await self._broker.publish(
            topic, records, partition=partition, waits=waits, now_ms=now_ms, session=session
        )

    @operation(Action.WRITE, topic())
    async def prepare(self, session: Session, *, topic: TopicName) -> None:
        """Raise unless records can be published to a topic; create it at its first use."""
        if self._broker.quotas.is_active:
            self._broker.quotas.check_produce(session, ())
        found = self._broker.topics.find(topic)
        if found is None:
            found = await self._create_topic(session, topic)
        if found.is_internal:
            raise InternalTopic(topic)

    # Reading

    @operation(Action.READ, topic(), is_reading=True, charges=records_of_page)
    async def read(
        self,
        session: Session,
        *,
        topic: TopicName,
        spans: Sequence[Span],
        records_max: int,
        bytes_max: int,
        wait_ms: int = 0,
        is_committed_only: bool = True,
        cancellation: Cancellation,
    ) -> PageView:
        """Read decoded records, waiting for the first if there is none."""
        places = await self._find_places(topic, spans, is_committed_only)
        reading = self._broker.reads.read(
            places,
            records_max=records_max,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            is_committed_only=is_committed_only,
        )
        cancellation.on_cancel(reading.cancel)
        page = await reading.promise
        report_read(self._broker, session, topic, [record for _, record in page.records])
        return page

    @operation(Action.READ, topic(), is_reading=True, charges=one_record)
    async def read_one(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int,
        offset: int,
        bytes_max: int,
        is_committed_only: bool = True,
    ) -> Record:
        """Return the record at an offset."""
        found = self._broker.topics.get(topic)
        known = found.partition(partition)
        [bounds] = await self._broker.reads.look(found, [partition])
        start, end = bounds.start_offset, bounds.high_watermark
        if start <= offset < end:
            reading = self._broker.reads.read(
                [Place(known, offset, offset + 1)],
                records_max=1,
                bytes_max=bytes_max,
                is_committed_only=is_committed_only,
            )
            page = await reading.promise
            if page.damaged:
                raise page.damaged[0].error
            for _, record in page.records:
                report_read(self._broker, session, topic, [record])
                return record
        raise UnknownMessage(known.name, offset, start=start, end=end - 1)

    @operation(Action.READ, topic(), is_reading=True, charges=bytes_searched)
    async def search(
        self,
        session: Session,
        *,
        topic: TopicName,
        spans: Sequence[Span],
        wanted: RecordFilter,
        limit: int,
        bytes_max: int = SEARCH_BYTES_MAX,
        cancellation: Cancellation,
    ) -> SearchPage:
        """Find records by key, trace id, header or text, the oldest first.

        A call reads about `bytes_max` bytes; a page may be empty before the end. The next call
        continues where `places` say, until there are none.
        """
        return await self._find(
            session,
            topic,
            spans,
            wanted,
            limit=limit,
            bytes_max=bytes_max,
            cancellation=cancellation,
        )

    async def _find(
        self,
        session: Session,
        topic: str,
        spans: Sequence[Span],
        wanted: RecordFilter,
        *,
        limit: int,
        bytes_max: int,
        cancellation: Cancellation,
    ) -> SearchPage:
        """Find records for a session that may read them now; whoever calls charges it.

        It reads no more than the session may in a second, so that it does not wait for long.
        """
        meter = self._broker.quotas.meter(session)
        bytes_min = SEARCH_BYTES_MIN
        if meter is not None:
            allowed = meter.fetch_bytes_max(bytes_max)
            bytes_min = SEARCH_BYTES_MIN if allowed == bytes_max else METERED_BYTES_MIN
            bytes_max = allowed
        wanted.wanted()
        places = await self._find_places(topic, spans, is_committed_only=True)
        now = places[:SEARCHED_AT_ONCE]
        parts = [
            self.search_partition(
                session,
                topic=topic,
                partition=one.partition.name.partition,
                begin=one.offset,
                until=OFFSET_MAX if one.until_offset is None else one.until_offset,
                wanted=wanted,
                limit=limit,
                bytes_max=max(bytes_min, bytes_max // len(now)),
                cancellation=cancellation,
            )
            for one in now
        ]
        numbers = [one.partition.name.partition for one in places]
        later = [(number, one.offset) for number, one in zip(numbers, places, strict=True)]
        found = [await one for one in parts]
        return merge_parts(dict(zip(numbers, found, strict=False)), later[len(now) :], limit=limit)

    @operation(Action.READ, topic(), owner=_leader, is_reading=True)
    async def search_partition(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int,
        begin: int,
        until: int,
        wanted: RecordFilter,
        limit: int,
        bytes_max: int,
        cancellation: Cancellation,
    ) -> SearchPart:
        """Find records in one partition, on its leader: a part of `search`."""
        found = self._broker.topics.get(topic).partition(partition)
        found.check_leading()
        return await self._broker.reads.searches.search(
            found,
            wanted.wanted(),
            begin=begin,
            until=until,
            limit=limit,
            bytes_max=bytes_max,
            cancellation=cancellation,
        )

    @operation(Action.READ, topic(), is_reading=True)
    async def follow(
        self,
        session: Session,
        *,
        topic: TopicName,
        spans: Sequence[Span],
        is_committed_only: bool = True,
    ) -> RecordStream:
        """Return a reader of partitions that continues where its last page ended."""
        places = await self._find_places(topic, spans, is_committed_only)
        resource = Resource(ResourceKind.TOPIC, topic)
        return _Stream(
            self._broker,
            session,
            places,
            check=lambda: self._check(session, Action.READ, resource),
            is_committed_only=is_committed_only,
        )

    @operation(Action.READ, topic(), is_reading=True)
    async def ranges(
        self,
        session: Session,
        *,
        topic: TopicName,
        spans: Sequence[Span],
        is_committed_only: bool = True,
    ) -> list[Range]:
        """Return the offsets that a reader finds now; those that are gone are left out."""
        found = self._broker.topics.get(topic)
        times_ms = times_of(position for one in spans for position in (one.begin, one.until))
        numbers = [one.partition for one in spans]
        bounds = await self._broker.reads.look(found, numbers, times_ms=times_ms)
        return [
            range_of(span, one, is_committed_only=is_committed_only)
            for span, one in zip(spans, bounds, strict=True)
        ]

    async def _find_places(
        self, topic: str, spans: Sequence[Span], is_committed_only: bool
    ) -> list[Place]:
        return await find_places(
            self._broker.reads.look,
            self._broker.topics.get(topic),
            spans,
            is_committed_only=is_committed_only,
        )

    # Bounds and offsets

    @operation(Action.DESCRIBE, topic(), is_reading=True)
    async def bounds(
        self,
        session: Session,
        *,
        topic: TopicName,
        partitions: Sequence[int] | None = None,
        times_ms: Sequence[int] = (),
        may_guess: bool = False,
        with_records_end: bool = False,
    ) -> Sequence[Bounds]:
        """Return the bounds of partitions from their leaders; by default all of a topic.

        Searching for the times `times_ms`, and for the last record `with_records_end`, is done on
        the leaders and only if requested. With `may_guess`, the local replica answers where no
        leader does.
        """
        found = self._broker.topics.get(topic)
        return await self._broker.reads.look(
            found,
            range(found.partition_count) if partitions is None else partitions,
            times_ms=times_ms,
            may_guess=may_guess,
            with_records_end=with_records_end,
        )

    @query(Action.DESCRIBE, topic())
    def find_offset(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int,
        position: Position,
        leader_epoch: int = -1,
        is_committed_only: bool = False,
    ) -> FoundOffset | None:
        """Return what is at a position of a partition led by this node; None if nothing is.

        `leader_epoch` is the epoch in the client's metadata, -1 if it has none.
        """
        found = self._broker.topics.get(topic).partition(partition)
        found.check_leading()
        found.check_epoch(leader_epoch)
        return find_offset(found, position, is_committed_only=is_committed_only)

    @query(Action.DESCRIBE, topic())
    def epoch_end(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int,
        epoch: int,
        leader_epoch: int = -1,
    ) -> tuple[int, int]:
        """Return the last epoch, up to the given one, that has records, and its end offset."""
        found = self._broker.topics.get(topic).partition(partition)
        found.check_leading()
        found.check_epoch(leader_epoch)
        return found.replica.epoch_end(epoch)

    # Deleting

    @operation(Action.DELETE, topic(), owner=_leader)
    def delete(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int,
        before_offset: int,
        timeout_ms: int = DELETION_TIMEOUT_MS,
    ) -> Promise[int]:
        """Delete the records of a partition before an offset, or with -1 all committed ones.

        Resolves with the new log start when no in-sync replica has them any more.
        """
        return self._broker.administration.delete_records(
            topic, partition, before_offset=before_offset, timeout_ms=timeout_ms
        )

    @operation(Action.DELETE, topic())
    async def delete_before(
        self,
        session: Session,
        *,
        topic: TopicName,
        partition: int | None = None,
        before: Position | None = None,
    ) -> list[tuple[int, int]]:
        """Delete the records of one partition or of all before a position, or all committed ones.

        Returns the partitions with their new log starts. All offsets are determined before
        anything is deleted, so that an error deletes nothing.
        """
        found = self._broker.topics.get(topic)
        policy = found.settings.log
        if policy.is_compacting and not policy.is_deleting:
            raise RecordsKept(topic)
        numbers = range(found.partition_count) if partition is None else [partition]
        bounds = await self._broker.reads.look(found, numbers, times_ms=times_of([before]))
        offsets = [
            one.high_watermark if before is None else offset_at(one, before) for one in bounds
        ]
        return [
            (
                number,
                await self.delete(session, topic=topic, partition=number, before_offset=offset),
            )
            for number, offset in zip(numbers, offsets, strict=True)
        ]


class _Stream:
    """Reads partitions page by page, and checks the session's access for each page."""

    def __init__(
        self,
        broker: Broker,
        session: Session,
        places: list[Place],
        *,
        check: Callable[[], None],
        is_committed_only: bool,
    ) -> None:
        self.places = places
        self._session = session
        self._broker = broker
        self._check = check
        self._is_committed_only = is_committed_only
        self._reading: Reading | None = None

    def next(self, *, records_max: int, bytes_max: int, wait_ms: int) -> Promise[PageView]:
        try:
            self._check()
        except GoQueueError as error:
            denied: Promise[PageView] = Promise()
            denied.reject(error)
            return denied
        meter = self._broker.quotas.meter(self._session)
        wait_for_quota_ms = 0 if meter is None else meter.fetch_wait_ms()
        if wait_for_quota_ms:
            return self._pause(min(wait_ms, wait_for_quota_ms))
        reading = self._reading = self._broker.reads.read(
            self.places,
            records_max=records_max,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            is_committed_only=self._is_committed_only,
        )
        reading.promise.then(self._arrived)
        return promised(self._page(reading))

    async def _page(self, reading: Reading) -> PageView:
        """Return a page, unless access has ended while it was awaited."""
        page = await reading.promise
        self._check()
        for name, records in groupby(page.records, key=lambda one: one[0].name.topic):
            report_read(self._broker, self._session, name, [record for _, record in records])
        return page

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _arrived(self, page: Page | None, _: Exception | None) -> None:
        self._reading = None
        if page is not None:
            self.places = page.places
            if self._broker.quotas.is_active:
                self._broker.quotas.consumed(self._session, *records_of_page(page))

    def _pause(self, pause_ms: int) -> Promise[PageView]:
        """Return an empty page later: a stream over its quota is slowed, not ended."""
        promise: Promise[PageView] = Promise()
        self._broker.clock.call_later(pause_ms, lambda: promise.resolve(Page(places=self.places)))
        return promise


def report_read(broker: Broker, session: Session, topic: str, records: Sequence[Record]) -> None:
    """Report to the observer what a client has read of a topic."""
    observer = broker.topics.observer
    if observer is not None and records:
        observer.fetched(topic, len(records), size=sum(map(size_of, records)), session=session)


def _record(one: Record | Outgoing) -> Record:
    return one.record if isinstance(one, Outgoing) else one
