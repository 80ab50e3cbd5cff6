"""The stream of events of a request to browse."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from goqueue.broker.gate.areas.records import At, Position, Range, RecordFilter, Span
from goqueue.loop.promise import Cancellation, Promise, promised
from goqueue.loop.turns import turn
from goqueue.model.errors import GoQueueError, QuotaExceeded
from goqueue.wire.carrier.calls import Stream, encode
from goqueue.wire.carrier.problems import InvalidField, problem_of
from goqueue.wire.http.browsing.bodies import Browse, Browsed, Phase, Progress, Reason
from goqueue.wire.http.browsing.cutting import Cutting
from goqueue.wire.http.browsing.matching import Pattern
from goqueue.wire.http.browsing.scans import Ascending, Descending, Match, Read, Scan
from goqueue.wire.http.handlers.reading import (
    PARTITIONS_PER_READ_MAX,
    at_cursor,
    check_count,
    damages_of,
)
from goqueue.wire.http.moments import EARLIEST, LATEST, position_of

if TYPE_CHECKING:
    from goqueue.model.batch import Record
    from goqueue.model.session import Session
    from goqueue.wire.carrier.calls import Call
    from goqueue.wire.http.front_end import FrontEnd

PROGRESS_MS = 250
SEARCH_BYTES = 64 << 20  # by one call: progress comes after it
READ_RECORDS = 500
READ_BYTES = 1 << 20
CUT_BYTES_TOTAL = 32 << 20  # of the values of one page
RECORD_BYTES = 64  # of a record besides its key and value
EVENT_BYTES_MAX = 1 << 20  # written at once


class Target(NamedTuple):
    """What is browsed."""

    topic: str
    wanted: RecordFilter
    pattern: Pattern | None

    @property
    def has_conditions(self) -> bool:
        return not self.wanted.is_empty or self.pattern is not None


async def browse(front: FrontEnd, call: Call, query: Browse) -> BrowseStream:
    """Begin to browse a topic."""
    topic = front.gate.topics.get(call.session, topic=call.text("topic"))
    pattern = None if query.regex is None else Pattern(query.regex)
    wanted = RecordFilter(
        _encoded(query.key),
        query.trace_id,
        query.header,
        _encoded(query.header_value),
        _encoded(query.text),
    )
    wanted.wanted()  # Raise if the conditions are not valid.
    ranges = await front.gate.records.ranges(
        call.session,
        topic=topic.name,
        spans=_spans(query, topic.partition_count, front.now_ms()),
    )
    ranges = _continued(query, ranges)
    target = Target(topic.name, wanted, pattern)
    scan: Scan
    if query.order == "oldest":
        scan = Ascending(ranges)
    else:
        scan = Descending(ranges, wanted=query.limit, is_exact=not target.has_conditions)
    return BrowseStream(front, call.session, target, scan, query)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _spans(query: Browse, partition_count: int, now_ms: int) -> list[Span]:
    if query.offset is not None:
        if query.partition is None:
            raise InvalidField("An offset needs a partition; give it too.", field="partition")
        if query.cursor is not None:
            raise InvalidField("Give either an offset or a cursor.", field="cursor")
    begin = position_of(query.from_ or EARLIEST, now_ms=now_ms, field="from")
    end = position_of(query.until or LATEST, now_ms=now_ms, field="until")
    numbers = range(partition_count) if query.partition is None else [query.partition]
    if query.cursor is not None:
        places = at_cursor(query.cursor, most=PARTITIONS_PER_READ_MAX)
        numbers = [one for one in numbers if one in places]
    check_count(len(numbers), most=PARTITIONS_PER_READ_MAX)
    return [Span(number, begin, end) for number in numbers]


def _continued(query: Browse, ranges: Sequence[Range]) -> list[Range]:
    """Return the part of the ranges that begins at a cursor or an offset."""
    places: dict[int, int] = {}
    if query.cursor is not None:
        places = at_cursor(query.cursor, most=PARTITIONS_PER_READ_MAX)
    elif query.offset is not None and query.partition is not None:
        at = query.offset + (query.order == "newest")  # The named message is the first one.
        places = {query.partition: at}
    if query.order == "oldest":
        return [one._replace(begin=max(one.begin, places.get(one.partition, 0))) for one in ranges]
    return [one._replace(end=min(one.end, places.get(one.partition, one.end))) for one in ranges]


class BrowseStream(Stream):
    """The events of one client; each call of `next` scans a little further."""

    def __init__(
        self, front: FrontEnd, session: Session, target: Target, scan: Scan, query: Browse
    ) -> None:
        self.is_over = False
        self._front = front
        self._session = session
        self._target = target
        self._scan = scan
        self._limit = query.limit
        self._scan_bytes = query.scan_bytes
        self._cutting = Cutting(
            target.topic, query.encoding, min(query.value_bytes, CUT_BYTES_TOTAL // query.limit)
        )
        self._cancellation = Cancellation()
        self._began_ms = self._reported_ms = front.gate.clock.now_ms()
        self._ready: deque[Match] = deque()  # found, and not yet sent
        self._sent = self._scanned = self._skipped = 0

    def opening(self) -> bytes:
        return _event("phase", Phase(phase="scanning"))

    def next(self) -> Promise[bytes]:
        promise: Promise[bytes] = Promise()

        def arrived(events: bytes | None, error: Exception | None) -> None:
            if isinstance(error, GoQueueError):
                self.is_over = True
                promise.resolve(_event("error", problem_of(error)))
            else:
                promise.settle(events, error)

        promised(self._advance()).then(arrived)
        return promise

    def close(self) -> None:
        """End the scan, because the client has disconnected."""
        self.is_over = True
        self._cancellation.cancel()

    async def _advance(self) -> bytes:
        """Scan until there is something to send."""
        while not self._cancellation.is_cancelled:
            if self._ready:
                return self._take_ready()
            if self._sent >= self._limit:
                return self._done("limit")
            is_used_up = self._scanned >= self._scan_bytes and not self._scan.is_within_step
            ranges = self._scan.ranges()
            if not ranges or is_used_up:
                return self._done("budget" if ranges else "end")
            try:
                read, damage = await self._read(ranges)
            except QuotaExceeded as error:
                # Slowed, not ended; progress shows in time whether the client is still there.
                await self._pause(min(error.wait_ms, PROGRESS_MS))
                return self._progress()
            self._scanned += read.scanned_bytes
            self._ready += self._scan.put(read, self._limit - self._sent)
            if damage or (not self._ready and self._is_progress_due()):
                return damage + self._progress()
            # What is in memory is read at once, and others must be served too.
            await turn(self._front.gate.clock)
        return b": cancelled\n\n"

    def _pause(self, wait_ms: int) -> Promise[None]:
        over: Promise[None] = Promise()
        self._front.gate.clock.call_later(wait_ms, lambda: over.resolve(None))
        return over

    def _take_ready(self) -> bytes:
        """Return events of messages that were found, of a limited size."""
        events, size = [], 0
        while self._ready and size < EVENT_BYTES_MAX:
            events.append(_event("message", self._cutting.show(self._ready.popleft())))
            size += len(events[-1])
            self._sent += 1
        if not self._ready:
            events.append(self._progress())
        return b"".join(events)

    async def _read(self, ranges: Sequence[Range]) -> tuple[Read, bytes]:
        if self._target.wanted.is_empty:
            return await self._read_all(ranges)
        page = await self._front.gate.records.search(
            self._session,
            topic=self._target.topic,
            spans=_exactly(ranges),
            wanted=self._target.wanted,
            limit=READ_RECORDS,
            bytes_max=SEARCH_BYTES,
            cancellation=self._cancellation,
        )
        self._skipped += page.skipped_bytes
        return Read(self._matching(page.records), dict(page.places), page.read_bytes), b""

    async def _read_all(self, ranges: Sequence[Range]) -> tuple[Read, bytes]:
        page = await self._front.gate.records.read(
            self._session,
            topic=self._target.topic,
            spans=_exactly(ranges),
            records_max=READ_RECORDS,
            bytes_max=READ_BYTES,
            cancellation=self._cancellation,
        )
        ends = {one.partition: one.end for one in ranges}
        places = {one.partition.name.partition: one.offset for one in page.places}
        left = {number: place for number, place in places.items() if place < ends[number]}
        records = [(one.name.partition, record) for one, record in page.records]
        size = sum(len(one.key or b"") + len(one.value or b"") + RECORD_BYTES for _, one in records)
        damage = b"".join(_event("damage", one) for one in damages_of(page))
        return Read(self._matching(records), left, size), damage

    def _matching(self, records: Sequence[tuple[int, Record]]) -> list[Match]:
        pattern = self._target.pattern
        if pattern is not None:
            records = [one for one in records if pattern.is_in(one[1])]
        return [self._cutting.cut(number, record) for number, record in records]

    def _is_progress_due(self) -> bool:
        return self._front.gate.clock.now_ms() - self._reported_ms >= PROGRESS_MS

    def _progress(self) -> bytes:
        self._reported_ms = self._front.gate.clock.now_ms()
        share = self._scan.share
        return _event(
            "progress",
            Progress(
                messages=self._sent,
                scanned_bytes=self._scanned,
                skipped_bytes=self._skipped,
                share=None if share is None else round(share, 4),
                cursor=self._cursor(),
            ),
        )

    def _done(self, reason: Reason) -> bytes:
        self.is_over = True
        done = Browsed(
            reason=reason,
            messages=self._sent,
            scanned_bytes=self._scanned,
            skipped_bytes=self._skipped,
            elapsed_ms=self._front.gate.clock.now_ms() - self._began_ms,
            cursor=self._cursor(),
        )
        return _event("done", done)

    def _cursor(self) -> str:
        return ",".join(f"{number}:{place}" for number, place in self._scan.places.items())


def _exactly(ranges: Sequence[Range]) -> list[Span]:
    offset = partial(Position, At.OFFSET)
    return [Span(one.partition, offset(one.begin), offset(one.end)) for one in ranges]


def _event(kind: str, data: msgspec.Struct) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), encode(data))
